/* One viewer of a swarm: connects, does the handshake, reads frames, answers pings. */
#define _GNU_SOURCE
#include "viewer.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

typedef struct { /* a received frame: the viewer, the offset of the board, and the time when the frame was read */
    uint64_t viewer, offset;
    double at;
} Note;

Swarm swarm;

static int number_of(const Viewer *viewer) { return (int)(viewer - swarm.viewers); }

void forget(Viewer *viewer, State state) {
    if (viewer->state == CONNECTING || viewer->state == SHAKING) swarm.opening--;
    if (viewer->state == OPEN) {
        swarm.open--;
        swarm.served -= viewer->had > 0;
    }
    close(viewer->fd);
    viewer->state = state;
    if (state == AWAY) swarm.away[swarm.away_count++] = number_of(viewer);
    if (state == LOST) swarm.lost++;
}

static void try_again(Viewer *viewer, const char *why) {
    if (!swarm.refused++) fprintf(stderr, "swarm: a viewer was refused: %.*s\n", 60, why);
    if (swarm.refused > 20UL * (unsigned long)swarm.total) fail("too many viewers were refused");
    forget(viewer, AWAY);
}

void start(Viewer *viewer) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)swarm.port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (fd < 0) fail(strerror(errno));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    struct sockaddr_in own = {.sin_family = AF_INET,
                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK + (uint32_t)(number_of(viewer) % ADDRESSES))};
    if (bind(fd, (struct sockaddr *)&own, sizeof own)) fail(strerror(errno));
    *viewer = (Viewer){.fd = fd, .state = CONNECTING};
    swarm.opening++;
    if (connect(fd, (struct sockaddr *)&address, sizeof address) && errno != EINPROGRESS) fail(strerror(errno));
    struct epoll_event event = {.events = EPOLLOUT, .data.ptr = viewer};
    if (epoll_ctl(swarm.epoll, EPOLL_CTL_ADD, fd, &event)) fail("epoll_ctl");
}

static void ask(Viewer *viewer) {
    char where[512], request[1024];
    const char *path = swarm.path, *place = swarm.paths ? strstr(path, "%d") : NULL;
    int number = swarm.paths ? number_of(viewer) % swarm.paths : 0;
    if (place)
        snprintf(where, sizeof where, "%.*s%d%s", (int)(place - path), path, number, place + 2);
    else
        snprintf(where, sizeof where, "%s", path);
    int size = snprintf(request, sizeof request,
                        "GET %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n%s\r\n",
                        where, swarm.port,
                        swarm.deflates ? "Sec-WebSocket-Extensions: permessage-deflate\r\n" : "");
    if (write(viewer->fd, request, (size_t)size) != size) {
        try_again(viewer, strerror(errno));
        return;
    }
    viewer->state = SHAKING;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = viewer};
    if (epoll_ctl(swarm.epoll, EPOLL_CTL_MOD, viewer->fd, &event)) fail("epoll_ctl");
}

static void note(Viewer *viewer, double at) {
    static const char NAME[] = "\"offset\":";
    viewer->start[viewer->start_size < START ? viewer->start_size : START - 1] = 0;
    char *found = strstr((char *)viewer->start, NAME);
    if (!found) return;
    Note line = {(uint64_t)number_of(viewer), strtoull(found + sizeof NAME - 1, NULL, 10), at};
    if (fwrite(&line, sizeof line, 1, swarm.notes) != 1) fail("writing a note failed");
}

/* A masked frame, as a client sends it. The mask is 0, which leaves the payload unchanged. */
static void answer_ping(Viewer *viewer) {
    if (viewer->start_size > 125) fail("a ping is too long");
    unsigned char pong[6 + 125] = {0x8a, (unsigned char)(0x80 | viewer->start_size)};
    memcpy(pong + 6, viewer->start, (size_t)viewer->start_size);
    if (write(viewer->fd, pong, 6 + (size_t)viewer->start_size) < 0) return; /* the server will notice */
}

static void end_frame(Viewer *viewer, double at) {
    int opcode = viewer->header[0] & 15, last = viewer->header[0] & 128;
    swarm.count.frames[opcode]++;
    if (opcode == PING) answer_ping(viewer);
    if (opcode == CLOSE) viewer->closing = 1;
    if (opcode < CLOSE) {
        swarm.count.payload += viewer->size;
        if (swarm.notes && opcode != CONTINUED) note(viewer, at);
        if (last) {
            swarm.count.messages++;
            viewer->counted++;
            if (!viewer->had++) swarm.served++;
        }
    }
    viewer->header_size = viewer->start_size = 0;
}

/* True when the header is complete; `left` and `size` then describe the payload. */
static int read_header(Viewer *viewer, unsigned char byte) {
    unsigned char *header = viewer->header;
    header[viewer->header_size++] = byte;
    if (viewer->header_size < 2) return 0;
    int kind = header[1] & 127, whole = kind < 126 ? 2 : kind == 126 ? 4 : 10;
    if (viewer->header_size < whole) return 0;
    viewer->size = kind < 126 ? (uint64_t)kind : 0;
    for (int i = 2; i < whole; i++) viewer->size = viewer->size << 8 | header[i];
    viewer->left = viewer->size;
    return 1;
}

static void take_frames(Viewer *viewer, const unsigned char *data, const unsigned char *end, double at) {
    while (data < end) {
        if (!viewer->left) {
            if (read_header(viewer, *data++) && !viewer->left) end_frame(viewer, at);
            continue;
        }
        size_t take = (size_t)(end - data) < viewer->left ? (size_t)(end - data) : (size_t)viewer->left;
        if (swarm.notes || (viewer->header[0] & 8)) {
            size_t room = START - (size_t)viewer->start_size, keep = take < room ? take : room;
            memcpy(viewer->start + viewer->start_size, data, keep);
            viewer->start_size += (int)keep;
        }
        data += take;
        viewer->left -= take;
        if (!viewer->left) end_frame(viewer, at);
    }
}

/* Reads the head of the answer; returns the start of the frames, or NULL if there are none. */
static const unsigned char *shake(Viewer *viewer, const unsigned char *data, const unsigned char *end) {
    static const char GOOD[] = "HTTP/1.1 101";
    for (const unsigned char *byte = data; byte < end; byte++) {
        if (viewer->start_size < (int)sizeof GOOD - 1) viewer->start[viewer->start_size++] = *byte;
        viewer->matched = *byte == "\r\n\r\n"[viewer->matched] ? viewer->matched + 1 : *byte == '\r';
        if (viewer->matched < 4) continue;
        if (memcmp(viewer->start, GOOD, sizeof GOOD - 1)) break;
        viewer->state = OPEN;
        viewer->start_size = 0;
        swarm.opening--;
        swarm.open++;
        return byte + 1;
    }
    if (viewer->matched == 4) try_again(viewer, (const char *)data);
    return NULL;
}

static void hear(Viewer *viewer, double at) {
    static unsigned char buffer[1 << 16];
    ssize_t got = read(viewer->fd, buffer, sizeof buffer - 1);
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) {
        if (viewer->state == OPEN) forget(viewer, LOST);
        else try_again(viewer, got ? strerror(errno) : "closed");
        return;
    }
    const unsigned char *data = buffer, *end = buffer + got;
    buffer[got] = 0;
    if (viewer->state == SHAKING) data = shake(viewer, data, end);
    if (!data) return;
    swarm.count.bytes += (unsigned long)(end - data);
    take_frames(viewer, data, end, at);
    if (viewer->closing) forget(viewer, LOST);
}

void handle(Viewer *viewer) {
    if (viewer->state == AWAY || viewer->state == LOST) return; /* `cut` came in the same batch of events */
    if (viewer->state != CONNECTING) {
        hear(viewer, now());
        return;
    }
    int error = 0;
    socklen_t size = sizeof error;
    getsockopt(viewer->fd, SOL_SOCKET, SO_ERROR, &error, &size);
    if (error) try_again(viewer, strerror(error));
    else ask(viewer);
}
