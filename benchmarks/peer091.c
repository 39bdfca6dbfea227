/* Load a broker over AMQP 0-9-1 as applications do, with a client that costs little: rabbitmq-c, a thread for each
 * connection, one write for each message that is published.
 *
 *     peer091 load PORT MESSAGES PUBLISHERS CONSUMERS QUEUES TURNS CONFIRMS PREFETCH ACK-EVERY COPIES PERSISTENT OWN \
 *             SIZE-MIN SIZE-MAX EXCHANGE KEY QUEUE
 *     peer091 ask PORT REQUESTS
 *
 * `load`: each publisher sends MESSAGES, has at most CONFIRMS of them unconfirmed, and writes KEY with a number for %d:
 * with TURNS that of the message modulo QUEUES, else its own. Consumer N reads from QUEUE with N modulo QUEUES for %d, with
 * PREFETCH, and acknowledges ACK-EVERY at a time, one by one if that is 1. With OWN, messages have ids, a time and headers
 * of their own, one of which tells the number, else they are alike. It prints the seconds from the first publish to the last
 * delivery and confirm, and the median and the 99th percentile of the time from a publish to its delivery, in
 * microseconds. Exchange, queues and bindings exist.
 *
 * `ask`: one client sends requests with direct reply-to, one at a time, and another answers them. It prints the median
 * and the 99th percentile of a round trip, in microseconds.
 *
 * With PEER091_CA, the file of a certificate authority, in the environment all of it goes over TLS.
 */
#include <amqp.h>
#include <amqp_framing.h>
#include <amqp_ssl_socket.h>
#include <amqp_tcp_socket.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { CHANNEL = 1, FRAME_MAX = 131072, NAME_MAX_ = 256, BODY_MAX = 1 << 20 };

static int port, messages, publishers, consumers, queues, turns, confirms, prefetch, ack_every, copies;
static int persistent, own;
static int size_min, size_max;
static const char *exchange, *key_pattern, *queue_pattern;
static pthread_barrier_t ready;
static atomic_long wanted;
static struct timespec begun;
static double last_s;
static double *deliveries; /* microseconds from publish to delivery, in the order of the deliveries */
static pthread_mutex_t at_end = PTHREAD_MUTEX_INITIALIZER;

static void fail(const char *what, ...) {
    va_list more;
    va_start(more, what);
    vfprintf(stderr, what, more);
    fputc('\n', stderr);
    exit(1);
}

static double since(struct timespec then) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)(now.tv_sec - then.tv_sec) + (double)(now.tv_nsec - then.tv_nsec) / 1e9;
}

static void done(void) {
    double now = since(begun);
    pthread_mutex_lock(&at_end);
    if (now > last_s) last_s = now;
    pthread_mutex_unlock(&at_end);
}

static void require(amqp_rpc_reply_t reply, const char *what) {
    if (reply.reply_type != AMQP_RESPONSE_NORMAL) fail("the broker refuses: %s", what);
}

static amqp_connection_state_t connected(void) {
    amqp_connection_state_t state = amqp_new_connection();
    const char *authority = getenv("PEER091_CA");
    amqp_socket_t *socket = authority ? amqp_ssl_socket_new(state) : amqp_tcp_socket_new(state);
    if (authority) {
        if (amqp_ssl_socket_set_cacert(socket, authority)) fail("no certificate in %s", authority);
        amqp_ssl_socket_set_verify_hostname(socket, 0); /* it is told an address */
    }
    if (amqp_socket_open(socket, "127.0.0.1", port)) fail("nothing listens on port %d", port);
    require(amqp_login(state, "/", 0, FRAME_MAX, 0, AMQP_SASL_METHOD_PLAIN, "guest", "guest"), "login");
    amqp_channel_open(state, CHANNEL);
    require(amqp_get_rpc_reply(state), "channel.open");
    return state;
}

/* What applications set: ids, a time and headers of its own in each message; or the same in all. */
static void properties_of(amqp_basic_properties_t *given, amqp_table_entry_t *headers, char *text, long number,
                          int tenant) {
    char *message_id = text, *correlation_id = text + 32, *trace = text + 64, *tenant_id = text + 128;
    snprintf(tenant_id, 16, "t%d", tenant);
    snprintf(message_id, 32, "m-%016lx", number);
    snprintf(correlation_id, 32, "%016lx", number);
    snprintf(trace, 64, "00-4bf92f3577b34da6%016lx-00f067aa0ba902b7-01", number);
    memset(given, 0, sizeof *given);
    if (!own) {
        given->_flags = AMQP_BASIC_CONTENT_TYPE_FLAG | AMQP_BASIC_DELIVERY_MODE_FLAG;
        given->content_type = amqp_cstring_bytes("application/json");
        given->delivery_mode = (uint8_t)(persistent ? 2 : 1);
        return;
    }
    given->_flags = AMQP_BASIC_CONTENT_TYPE_FLAG | AMQP_BASIC_HEADERS_FLAG | AMQP_BASIC_DELIVERY_MODE_FLAG |
                    AMQP_BASIC_CORRELATION_ID_FLAG | AMQP_BASIC_MESSAGE_ID_FLAG | AMQP_BASIC_TIMESTAMP_FLAG;
    given->content_type = amqp_cstring_bytes("application/json");
    given->delivery_mode = (uint8_t)(persistent ? 2 : 1);
    given->correlation_id = amqp_cstring_bytes(correlation_id);
    given->message_id = amqp_cstring_bytes(message_id);
    given->timestamp = (uint64_t)time(NULL);
    headers[0].key = amqp_cstring_bytes("traceparent");
    headers[0].value.kind = AMQP_FIELD_KIND_UTF8;
    headers[0].value.value.bytes = amqp_cstring_bytes(trace);
    headers[1].key = amqp_cstring_bytes("tenant");
    headers[1].value.kind = AMQP_FIELD_KIND_UTF8;
    headers[1].value.value.bytes = amqp_cstring_bytes(tenant_id);
    headers[2].key = amqp_cstring_bytes("attempt");
    headers[2].value.kind = AMQP_FIELD_KIND_I32;
    headers[2].value.value.i32 = 1;
    given->headers.num_entries = 3;
    given->headers.entries = headers;
}

static void publish(amqp_connection_state_t state, const char *to, const char *key, long number, int tenant,
                    amqp_bytes_t body, const char *reply_to) {
    amqp_basic_properties_t given;
    amqp_table_entry_t headers[3];
    char text[144];
    properties_of(&given, headers, text, number, tenant);
    if (reply_to) {
        given._flags |= AMQP_BASIC_REPLY_TO_FLAG;
        given.reply_to = amqp_cstring_bytes(reply_to);
    }
    if (amqp_basic_publish(state, CHANNEL, amqp_cstring_bytes(to), amqp_cstring_bytes(key), 0, 0, &given, body))
        fail("the broker takes no more");
}

/* Brokers confirm messages of several queues in any order, one or all up to one. */
struct confirms {
    char *seen;
    long low, count; /* all before `low` are confirmed */
};

static void take_confirm(struct confirms *known, amqp_frame_t *frame) {
    if (frame->frame_type != AMQP_FRAME_METHOD || frame->payload.method.id != AMQP_BASIC_ACK_METHOD)
        fail("a frame that is no confirm");
    amqp_basic_ack_t *ack = frame->payload.method.decoded;
    long tag = (long)ack->delivery_tag;
    for (long at = ack->multiple ? known->low : tag; at <= tag; at++) {
        known->count += !known->seen[at];
        known->seen[at] = 1;
    }
    while (known->low <= messages && known->seen[known->low]) known->low++;
}

static void *publisher(void *argument) {
    long number = (long)(intptr_t)argument, sent = 0;
    struct confirms known = {calloc(1, (size_t)messages + 2), 1, 0};
    amqp_connection_state_t state = connected();
    char *body = calloc(1, BODY_MAX), key[NAME_MAX_];
    amqp_confirm_select(state, CHANNEL);
    require(amqp_get_rpc_reply(state), "confirm.select");
    pthread_barrier_wait(&ready);
    while (known.count < messages) {
        if (sent < messages && sent - known.count < confirms) {
            size_t size = (size_t)size_min + (size_t)(sent * 7919) % (size_t)(size_max - size_min + 1);
            int which = (int)((turns ? number + sent : number) % queues);
            snprintf(key, sizeof key, key_pattern, which);
            double now_s = since(begun);
            memcpy(body, &now_s, sizeof now_s);
            publish(state, exchange, key, number << 40 | sent, which, (amqp_bytes_t){size, body}, NULL);
            sent++;
            continue;
        }
        amqp_frame_t frame;
        struct timeval none = {0, 0};
        int status = amqp_simple_wait_frame(state, &frame);
        while (status == AMQP_STATUS_OK) {
            take_confirm(&known, &frame);
            amqp_maybe_release_buffers(state);
            if (!amqp_frames_enqueued(state) && !amqp_data_in_buffer(state)) break;
            status = amqp_simple_wait_frame_noblock(state, &frame, &none);
        }
        if (status != AMQP_STATUS_OK && status != AMQP_STATUS_TIMEOUT) fail("the broker has gone");
    }
    done();
    return NULL;
}

static void *consumer(void *argument) {
    long number = (long)(intptr_t)argument;
    amqp_connection_state_t state = connected();
    char queue[NAME_MAX_];
    snprintf(queue, sizeof queue, queue_pattern, (int)(number % queues));
    amqp_basic_qos(state, CHANNEL, 0, (uint16_t)prefetch, 0);
    require(amqp_get_rpc_reply(state), "basic.qos");
    amqp_basic_consume(state, CHANNEL, amqp_cstring_bytes(queue), amqp_cstring_bytes("c"), 0, ack_every == 0, 0,
                       amqp_empty_table);
    require(amqp_get_rpc_reply(state), "basic.consume");
    pthread_barrier_wait(&ready);
    long unacknowledged = 0;
    for (;;) {
        amqp_envelope_t envelope;
        amqp_maybe_release_buffers(state);
        if (amqp_consume_message(state, &envelope, NULL, 0).reply_type != AMQP_RESPONSE_NORMAL)
            fail("the broker has gone");
        unacknowledged++;
        long left = atomic_fetch_sub(&wanted, 1) - 1;
        double sent_s = 0;
        memcpy(&sent_s, envelope.message.body.bytes, sizeof sent_s);
        deliveries[left] = (since(begun) - sent_s) * 1e6;
        if (ack_every && (unacknowledged >= ack_every || left <= 0)) {
            amqp_basic_ack(state, CHANNEL, envelope.delivery_tag, ack_every > 1);
            unacknowledged = 0;
        }
        amqp_destroy_envelope(&envelope);
        if (left == 0) {
            done();
            return NULL;
        }
    }
}

static int ascending(const void *one, const void *other) {
    double difference = *(const double *)one - *(const double *)other;
    return (difference > 0) - (difference < 0);
}

static int load(char **given) {
    messages = atoi(*given++), publishers = atoi(*given++), consumers = atoi(*given++), queues = atoi(*given++);
    turns = atoi(*given++), confirms = atoi(*given++), prefetch = atoi(*given++), ack_every = atoi(*given++);
    copies = atoi(*given++), persistent = atoi(*given++), own = atoi(*given++);
    size_min = atoi(*given++), size_max = atoi(*given++);
    exchange = *given++, key_pattern = *given++, queue_pattern = *given++;
    if (size_max >= BODY_MAX || size_min > size_max || size_min < (int)sizeof(double)) fail("no such sizes");
    long count = wanted = (long)messages * publishers * copies;
    deliveries = calloc((size_t)count, sizeof *deliveries);
    pthread_barrier_init(&ready, NULL, (unsigned)(publishers + consumers + 1));
    pthread_t thread, sending[256];
    for (long number = 0; number < consumers; number++)
        pthread_create(&thread, NULL, consumer, (void *)(intptr_t)number);
    for (long number = 0; number < publishers; number++)
        pthread_create(&sending[number], NULL, publisher, (void *)(intptr_t)number);
    clock_gettime(CLOCK_MONOTONIC, &begun);
    pthread_barrier_wait(&ready);
    for (long number = 0; number < publishers; number++) pthread_join(sending[number], NULL);
    struct timespec pause = {0, 1000000};
    while (wanted > 0) nanosleep(&pause, NULL);
    nanosleep(&pause, NULL);
    qsort(deliveries, (size_t)count, sizeof *deliveries, ascending);
    printf("%.6f %.1f %.1f\n", last_s, deliveries[count / 2], deliveries[count * 99 / 100]);
    return 0;
}

/* Requests and replies. */

static void *server(void *argument) {
    (void)argument;
    amqp_connection_state_t state = connected();
    amqp_basic_consume(state, CHANNEL, amqp_cstring_bytes("peer091.asked"), amqp_cstring_bytes("s"), 0, 1, 0,
                       amqp_empty_table);
    require(amqp_get_rpc_reply(state), "basic.consume");
    pthread_barrier_wait(&ready);
    for (long number = 0;; number++) {
        amqp_envelope_t envelope;
        char to[NAME_MAX_];
        amqp_maybe_release_buffers(state);
        if (amqp_consume_message(state, &envelope, NULL, 0).reply_type != AMQP_RESPONSE_NORMAL) return NULL;
        amqp_bytes_t reply_to = envelope.message.properties.reply_to;
        snprintf(to, sizeof to, "%.*s", (int)reply_to.len, (char *)reply_to.bytes);
        publish(state, "", to, number, 7, envelope.message.body, NULL);
        amqp_destroy_envelope(&envelope);
    }
}

static int ask(int requests) {
    pthread_t thread;
    queues = own = 1;
    pthread_barrier_init(&ready, NULL, 2);
    pthread_create(&thread, NULL, server, NULL);
    pthread_barrier_wait(&ready);
    amqp_connection_state_t state = connected();
    amqp_basic_consume(state, CHANNEL, amqp_cstring_bytes("amq.rabbitmq.reply-to"), amqp_cstring_bytes("r"), 0, 1, 0,
                       amqp_empty_table);
    require(amqp_get_rpc_reply(state), "basic.consume");
    double *took = calloc((size_t)requests, sizeof *took);
    char body[100] = {0};
    for (int number = 0; number < requests; number++) {
        struct timespec asked;
        amqp_envelope_t envelope;
        amqp_maybe_release_buffers(state);
        clock_gettime(CLOCK_MONOTONIC, &asked);
        publish(state, "", "peer091.asked", number, 7, (amqp_bytes_t){sizeof body, body}, "amq.rabbitmq.reply-to");
        if (amqp_consume_message(state, &envelope, NULL, 0).reply_type != AMQP_RESPONSE_NORMAL)
            fail("the broker has gone");
        took[number] = since(asked) * 1e6;
        amqp_destroy_envelope(&envelope);
    }
    qsort(took, (size_t)requests, sizeof *took, ascending);
    printf("%.1f %.1f\n", took[requests / 2], took[requests * 99 / 100]);
    return 0;
}

int main(int count, char **given) {
    if (count < 4) fail("see the head of peer091.c");
    port = atoi(given[2]);
    if (!strcmp(given[1], "load") && count == 19) return load(given + 3);
    if (!strcmp(given[1], "ask") && count == 4) return ask(atoi(given[3]));
    fail("see the head of peer091.c");
    return 2;
}
