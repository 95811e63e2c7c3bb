/* The baseline of `fan-out`: a server that only calls write(2) with one prepared WebSocket frame for every socket, each
 * tick.
 *
 * usage: floor PAYLOAD_BYTES TICK_SECONDS
 *
 * The program listens on a free port, prints its address, and serves until it is killed. No server that calls write(2)
 * per viewer can deliver a frame in less time. A viewer whose socket buffer is full misses the frame. A viewer that got
 * a part of a frame is disconnected.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

enum { MOST = 1 << 16, EVENTS = 512 };

/* Every viewer of the swarm sends the key of the example in RFC 6455, section 1.3, so the answer is constant. */
static const char ANSWER[] = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                             "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";

static int viewers[MOST]; /* sockets after the handshake */
static int places[MOST];  /* index in `viewers` by socket; -1 if it is not there */
static int count;
static unsigned char frame[4 + 65535];
static size_t frame_size;

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static void leave(int fd) {
    if (places[fd] >= 0) {
        int last = viewers[--count];
        viewers[places[fd]] = last;
        places[last] = places[fd];
        places[fd] = -1;
    }
    close(fd);
}

static void make_frame(size_t size) {
    frame[0] = 0x81; /* a complete text message */
    if (size < 126) {
        frame[1] = (unsigned char)size;
        frame_size = 2 + size;
    } else {
        frame[1] = 126;
        frame[2] = (unsigned char)(size >> 8);
        frame[3] = (unsigned char)size;
        frame_size = 4 + size;
    }
    memset(frame + frame_size - size, 'x', size);
}

/* Answers a handshake, which is short and so arrives in one piece. Any data that ends with an empty line counts as a
   handshake. */
static void hear(int fd) {
    char text[2048];
    ssize_t got = read(fd, text, sizeof text);
    if (got <= 0) {
        leave(fd);
    } else if (places[fd] < 0 && got >= 4 && !memcmp(text + got - 4, "\r\n\r\n", 4)) {
        if (write(fd, ANSWER, sizeof ANSWER - 1) != sizeof ANSWER - 1) {
            leave(fd);
            return;
        }
        places[fd] = count;
        viewers[count++] = fd;
    }
}

static void welcome(int epoll, int listener) {
    int one = 1, fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
    if (fd < 0) return;
    if (fd >= MOST) {
        close(fd);
        return;
    }
    places[fd] = -1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event)) fail("epoll_ctl");
}

/* Go backwards, so that the viewer that moves into a freed place has already received its frame. */
static void tick(int timer) {
    uint64_t due;
    if (read(timer, &due, sizeof due) != sizeof due) return;
    for (int i = count; i-- > 0;) {
        ssize_t wrote = write(viewers[i], frame, frame_size);
        if (wrote != (ssize_t)frame_size && !(wrote < 0 && errno == EAGAIN)) leave(viewers[i]);
    }
}

static int listen_somewhere(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, length) || listen(listener, 4096)) fail("listen");
    if (getsockname(listener, (struct sockaddr *)&address, &length)) fail("getsockname");
    printf("at http://127.0.0.1:%d/\n", ntohs(address.sin_port));
    fflush(stdout);
    return listener;
}

static int start_timer(double seconds) {
    struct timespec each = {.tv_sec = (time_t)seconds, .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};
    struct itimerspec rhythm = {.it_interval = each, .it_value = each};
    int timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    if (timer < 0 || timerfd_settime(timer, 0, &rhythm, NULL)) fail("timerfd");
    return timer;
}

int main(int argc, char **argv) {
    long size = argc == 3 ? atol(argv[1]) : -1;
    if (size < 0 || size > 65535 || atof(argv[2]) <= 0) {
        fprintf(stderr, "usage: floor PAYLOAD_BYTES TICK_SECONDS\n");
        return 2;
    }
    make_frame((size_t)size);
    int epoll = epoll_create1(0), listener = listen_somewhere(), timer = start_timer(atof(argv[2]));
    struct epoll_event events[EVENTS], of_listener = {.events = EPOLLIN, .data.fd = listener};
    struct epoll_event of_timer = {.events = EPOLLIN, .data.fd = timer};
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &of_listener)) fail("epoll_ctl");
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, timer, &of_timer)) fail("epoll_ctl");
    for (;;) {
        int ready = epoll_wait(epoll, events, EVENTS, -1);
        int ticked = 0;
        for (int i = 0; i < ready; i++) {
            int fd = events[i].data.fd;
            if (fd == listener) welcome(epoll, listener);
            else if (fd == timer) ticked = 1;
            else hear(fd);
        }
        if (ticked) tick(timer); /* This comes last, because it may close sockets that have other events. */
    }
}
