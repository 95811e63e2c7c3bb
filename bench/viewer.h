/* The viewers of a swarm: what is known of each, and what the commands do with them. */
#ifndef VIEWER_H
#define VIEWER_H

#include <stdint.h>
#include <stdio.h>

enum { MOST = 1 << 16, START = 256, OPCODES = 16, CONTINUED = 0, CLOSE = 8, PING = 9 };

typedef enum { AWAY, CONNECTING, SHAKING, OPEN, LOST } State;

typedef struct {
    int fd;
    State state;
    unsigned char header[10];   /* of the frame that is being read */
    int header_size, matched;   /* `matched`: how much of the blank line that ends the handshake was seen */
    uint64_t left, size;        /* bytes of the frame's payload: still to come, and in all */
    unsigned char start[START]; /* of the payload, where somebody looks at it; of the answer in a handshake */
    int start_size, let_go;     /* `let_go`: the server has sent a close frame */
    unsigned long had, counted; /* data frames on this connection, and in this measure */
} Viewer;

typedef struct {
    unsigned long frames[OPCODES], messages, payload, bytes;
} Count;

/* All of the swarm. */
typedef struct {
    Viewer viewers[MOST];
    int away[MOST], away_count; /* those that are to connect */
    int total, opening, open, served, lost;
    unsigned long refused;
    Count count;
    int epoll, port, paths;
    const char *path;
    FILE *notes; /* NULL when none are taken */
} Swarm;

extern Swarm swarm;

/* Ends the process with a word. */
_Noreturn void fail(const char *why);

/* Begins to connect a viewer that is away. */
void start(Viewer *viewer);

/* Closes a viewer's connection, or what there is of one; it is AWAY or LOST then. */
void forget(Viewer *viewer, State state);

/* Does what its socket is ready for. */
void handle(Viewer *viewer);

/* Seconds on CLOCK_MONOTONIC. */
double now(void);

#endif
