/* One end of an AMQP 1.0 link, on the C engine of Qpid Proton: the client of `python -m benchmarks amqp10`.
 *
 *   peer10 send PORT ADDRESS MESSAGES SIZE      unsettled transfers, as credit allows; at most WINDOW unanswered
 *   peer10 send-own PORT ADDRESS MESSAGES SIZE  the same, with ids, a time and application properties of its own in each
 *   peer10 receive PORT ADDRESS MESSAGES CREDIT accepts each message
 *
 * "ready" is printed once the link is attached, and at the end two times of the monotonic clock, in seconds: of the
 * first credit or message, and of the last outcome sent or received.
 */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <proton/condition.h>
#include <proton/connection.h>
#include <proton/connection_driver.h>
#include <proton/delivery.h>
#include <proton/link.h>
#include <proton/sasl.h>
#include <proton/session.h>
#include <proton/transport.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { READ_SIZE = 65536, BODY_MAX = 1 << 20, HEAD_MAX = 512, WINDOW = 1000 };

static pn_connection_driver_t driver;
static pn_link_t *link_;
static int sending, own, messages, credit;
static int begun, ended; /* transfers sent or received; outcomes received or sent */
static double first, last;
static bool closed;
static char message[BODY_MAX + HEAD_MAX];
static size_t message_size, ids[3]; /* where numbers of the message stand in it, as 16 digits */

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
}

static void fail(const char *what, pn_condition_t *why) {
    const char *description = why ? pn_condition_get_description(why) : NULL;
    fprintf(stderr, "peer10: %s: %s\n", what, description ? description : "no reason given");
    exit(1);
}

static void append(const char *octets, size_t size) {
    memcpy(message + message_size, octets, size);
    message_size += size;
}

static void append_text(char kind, const char *text) {
    char head[] = {kind, (char)strlen(text)};
    append(head, sizeof head);
    append(text, strlen(text));
}

static void append_id(const char *before, const char *after, int which) {
    char text[128];
    snprintf(text, sizeof text, "%s%016d%s", before, 0, after);
    ids[which] = message_size + 2 + strlen(before);
    append_text((char)0xa1, text);
}

/* Begin a section of a list or map of less than 256 octets; `end_section` writes its size. */
static size_t begin_section(char code, char kind, char count) {
    char head[] = {0, 0x53, code, kind, 0, count};
    append(head, sizeof head);
    return message_size - 2;
}

static void end_section(size_t size_at) { message[size_at] = (char)(message_size - size_at - 1); }

/* The sections that applications set: properties, and application properties. */
static void append_properties(void) {
    const char nulls[] = {0x40, 0x40, 0x40, 0x40}, none[] = {0x40, 0x40};
    const char created[] = {(char)0x83, 0, 0, 1, (char)0x90, 0, 0, 0, 0};
    const char one[] = {0x54, 1};
    size_t size_at = begin_section(0x73, (char)0xc0, 10);
    append_id("m-", "", 0);
    append(nulls, sizeof nulls);
    append_id("", "", 1);
    append_text((char)0xa3, "application/json");
    append(none, sizeof none);
    append(created, sizeof created);
    end_section(size_at);
    size_at = begin_section(0x74, (char)0xc1, 6);
    append_text((char)0xa1, "traceparent");
    append_id("00-4bf92f3577b34da6", "-00f067aa0ba902b7-01", 2);
    append_text((char)0xa1, "x-tenant");
    append_text((char)0xa1, "t7");
    append_text((char)0xa1, "attempt");
    append(one, sizeof one);
    end_section(size_at);
}

static void number_message(int number) {
    char digits[17];
    snprintf(digits, sizeof digits, "%016d", number);
    for (int which = 0; which < 3; which++) memcpy(message + ids[which], digits, 16);
}

/* A message with one data section, whose body has `size` octets. */
static void encode_message(size_t size) {
    if (own) append_properties();
    const char small[] = {0, 0x53, 0x75, (char)0xa0, (char)size};
    const char large[] = {0, 0x53, 0x75, (char)0xb0, 0, (char)(size >> 16), (char)(size >> 8), (char)size};
    size_t head = size < 256 ? sizeof small : sizeof large;
    append(size < 256 ? small : large, head);
    memset(message + message_size, 'x', size);
    message_size += size;
}

static void attach(const char *address) {
    pn_connection_t *connection = driver.connection;
    pn_connection_set_container(connection, sending ? "sender" : "receiver");
    pn_connection_set_hostname(connection, "vhost:/");
    pn_connection_set_user(connection, "guest");
    pn_connection_set_password(connection, "guest");
    pn_sasl_set_allow_insecure_mechs(pn_sasl(driver.transport), true);
    pn_sasl_allowed_mechs(pn_sasl(driver.transport), "PLAIN");
    pn_connection_open(connection);
    pn_session_t *session = pn_session(connection);
    pn_session_open(session);
    link_ = sending ? pn_sender(session, "link") : pn_receiver(session, "link");
    pn_terminus_set_address(sending ? pn_link_target(link_) : pn_link_source(link_), address);
    pn_link_set_snd_settle_mode(link_, PN_SND_UNSETTLED);
    pn_link_open(link_);
}

static void send_what_may_be_sent(void) {
    if (!begun && pn_link_credit(link_) > 0) first = now();
    while (begun < messages && begun - ended < WINDOW && pn_link_credit(link_) > 0) {
        begun++;
        pn_delivery(link_, pn_dtag((const char *)&begun, sizeof begun));
        if (own) number_message(begun);
        pn_link_send(link_, message, message_size);
        pn_link_advance(link_);
    }
}

static void on_outcome(pn_delivery_t *delivery) {
    if (!pn_delivery_updated(delivery)) return;
    if (pn_delivery_remote_state(delivery) != PN_ACCEPTED) fail("not accepted", NULL);
    pn_delivery_settle(delivery);
    ended++;
}

static void on_message(pn_delivery_t *delivery) {
    static char taken[BODY_MAX + HEAD_MAX];
    if (pn_delivery_partial(delivery) || !pn_delivery_readable(delivery)) return;
    if (!begun++) first = now();
    while (pn_link_recv(link_, taken, sizeof taken) > 0) continue;
    pn_delivery_update(delivery, PN_ACCEPTED);
    pn_delivery_settle(delivery);
    ended++;
    if (pn_link_credit(link_) <= credit / 2) pn_link_flow(link_, credit - pn_link_credit(link_));
}

static void on_event(pn_event_t *event) {
    switch (pn_event_type(event)) {
        case PN_LINK_REMOTE_OPEN:
            if (!sending) pn_link_flow(link_, credit);
            puts("ready");
            fflush(stdout);
            break;
        case PN_LINK_FLOW:
            if (sending) send_what_may_be_sent();
            break;
        case PN_DELIVERY:
            sending ? on_outcome(pn_event_delivery(event)) : on_message(pn_event_delivery(event));
            if (sending) send_what_may_be_sent();
            if (ended == messages && !last) {
                last = now();
                pn_connection_close(driver.connection);
            }
            break;
        case PN_LINK_REMOTE_CLOSE: fail("detached", pn_link_remote_condition(link_)); break;
        case PN_SESSION_REMOTE_CLOSE: fail("session ended", pn_session_remote_condition(pn_event_session(event))); break;
        case PN_CONNECTION_REMOTE_CLOSE:
            if (!last) fail("closed", pn_connection_remote_condition(driver.connection));
            closed = true;
            break;
        case PN_TRANSPORT_ERROR:
            if (!last) fail("transport", pn_transport_condition(driver.transport));
            break;
        default: break;
    }
}

static int connected(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    int one = 1, descriptor = socket(AF_INET, SOCK_STREAM, 0);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (connect(descriptor, (struct sockaddr *)&address, sizeof address)) fail("no connection", NULL);
    setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return descriptor;
}

static void exchange_bytes(int descriptor) {
    pn_rwbytes_t room = pn_connection_driver_read_buffer_sized(&driver, READ_SIZE);
    pn_bytes_t due = pn_connection_driver_write_buffer(&driver);
    struct pollfd wait = {.fd = descriptor};
    wait.events = (room.size ? POLLIN : 0) | (due.size ? POLLOUT : 0);
    if (!wait.events) return;
    poll(&wait, 1, -1);
    if (room.size && wait.revents & (POLLIN | POLLHUP | POLLERR)) {
        ssize_t got = recv(descriptor, room.start, room.size, MSG_DONTWAIT);
        if (got > 0) pn_connection_driver_read_done(&driver, got);
        else pn_connection_driver_read_close(&driver);
    }
    if (due.size && wait.revents & POLLOUT) {
        ssize_t gone = send(descriptor, due.start, due.size, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (gone > 0) pn_connection_driver_write_done(&driver, gone);
        else pn_connection_driver_write_close(&driver);
    }
}

int main(int argc, char **argv) {
    if (argc != 6) fail("usage: peer10 send|send-own|receive PORT ADDRESS MESSAGES SIZE|CREDIT", NULL);
    own = !strcmp(argv[1], "send-own");
    sending = own || !strcmp(argv[1], "send");
    messages = atoi(argv[4]);
    credit = atoi(argv[5]);
    if (sending) encode_message(credit < BODY_MAX ? credit : BODY_MAX);
    int descriptor = connected(atoi(argv[2]));
    pn_connection_driver_init(&driver, NULL, NULL);
    attach(argv[3]);
    pn_connection_driver_bind(&driver);
    while (!closed && !pn_connection_driver_finished(&driver)) {
        pn_event_t *event;
        exchange_bytes(descriptor);
        while ((event = pn_connection_driver_next_event(&driver))) on_event(event);
    }
    if (!last) fail("the connection was lost", NULL);
    printf("%.9f %.9f\n", first, last);
    return 0;
}
