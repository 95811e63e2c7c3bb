/* The viewers of a swarm: the state of each, and the operations on them. */
#ifndef VIEWER_H
#define VIEWER_H

#include <stdint.h>
#include <stdio.h>

/* A server gives one address at most half of its places, so viewers come from several: 127.0.0.1 and the next ones. */
enum { ADDRESSES = 4 };

enum { MOST = 1 << 16, START = 256, OPCODES = 16, CONTINUED = 0, CLOSE = 8, PING = 9 };

typedef enum { AWAY, CONNECTING, SHAKING, OPEN, LOST } State;

typedef struct {
    int fd;
    State state;
    unsigned char header[10];   /* of the current frame, as far as it has arrived */
    int header_size, matched;   /* `matched`: bytes seen of the blank line that ends the handshake */
    uint64_t left, size;        /* bytes of the frame's payload: `left` are missing, `size` are all */
    unsigned char start[START]; /* the first bytes of the payload or, in a handshake, of the answer */
    int start_size, closing;    /* `closing`: the server has sent a close frame */
    unsigned long had, counted; /* data frames: `had` on this connection, `counted` in this measurement */
} Viewer;

typedef struct {
    unsigned long frames[OPCODES], messages, payload, bytes;
} Count;

/* The whole swarm. */
typedef struct {
    Viewer viewers[MOST];
    int away[MOST], away_count; /* viewers to connect */
    int total, opening, open, served, lost;
    unsigned long refused;
    Count count;
    int epoll, port, paths, deflates;
    const char *path;
    FILE *notes; /* NULL when notes are off */
} Swarm;

extern Swarm swarm;

/* Prints the reason and ends the process. */
_Noreturn void fail(const char *why);

/* Starts to connect a viewer that is AWAY. */
void start(Viewer *viewer);

/* Closes a viewer's connection; its new state is AWAY or LOST. */
void forget(Viewer *viewer, State state);

/* Handles the events of a viewer's socket. */
void handle(Viewer *viewer);

/* Returns the seconds on CLOCK_MONOTONIC. */
double now(void);

#endif
