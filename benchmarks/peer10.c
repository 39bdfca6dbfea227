/* One end of an AMQP 1.0 link, on the C engine of Qpid Proton: the client of `python -m benchmarks amqp10`.
 *
 *   peer10 send PORT ADDRESS MESSAGES SIZE      unsettled transfers, as credit allows; at most WINDOW unanswered
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

enum { READ_SIZE = 65536, BODY_MAX = 1 << 20, WINDOW = 1000 };

static pn_connection_driver_t driver;
static pn_link_t *link_;
static int sending, messages, credit;
static int begun, ended; /* transfers sent or received; outcomes received or sent */
static double first, last;
static bool closed;
static char message[BODY_MAX + 8];
static size_t message_size;

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

/* A message of one data section, whose body has `size` octets. */
static void encode_message(size_t size) {
    const char small[] = {0, 0x53, 0x75, (char)0xa0, (char)size};
    const char large[] = {0, 0x53, 0x75, (char)0xb0, 0, (char)(size >> 16), (char)(size >> 8), (char)size};
    size_t head = size < 256 ? sizeof small : sizeof large;
    memcpy(message, size < 256 ? small : large, head);
    memset(message + head, 'x', size);
    message_size = head + size;
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
    static char taken[BODY_MAX + 8];
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
    if (argc != 6) fail("usage: peer10 send|receive PORT ADDRESS MESSAGES SIZE|CREDIT", NULL);
    sending = !strcmp(argv[1], "send");
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
