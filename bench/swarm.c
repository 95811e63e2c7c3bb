/* A swarm of WebSocket viewers in one process: reads as fast as the kernel allows, and counts complete frames.
 *
 * usage: swarm PORT PATH [PATHS [deflate]]
 *
 * The program watches PATH at 127.0.0.1:PORT; with PATHS, `%d` in PATH becomes i modulo PATHS for viewer i. With
 * `deflate`, viewers offer permessage-deflate, and count compressed frames without decompressing them. The program
 * reads one command per line from stdin, answers each with a line of JSON, and ends when stdin ends.
 *
 *   connect N AT_ONCE FIRST  Connect N more viewers, and again those that `cut` reset: at most AT_ONCE at a time.
 *                            Answered when all handshakes are done and, if FIRST is 1, every viewer has received a data
 *                            frame. A refused viewer tries again.
 *   measure SECONDS PID...   Count received frames, and the user and system CPU time of the processes.
 *   cut                      Reset every connection.
 *   note FILE                Write a `Note` to FILE for each received frame, until the next `note`.
 *   note                     Stop writing notes.
 *
 * Pings are answered and counted separately. A viewer that the server disconnects counts as lost and stays away.
 */
#define _GNU_SOURCE
#include "viewer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { EVENTS = 1024, MOST_PIDS = 16 };
static const double PATIENCE = 90; /* seconds for all viewers to connect */

static enum { NOTHING, CONNECT, MEASURE } task;
static double since, until, opened_after, pid_cpu[MOST_PIDS], own_cpu;
static int at_once, wait_first, pids[MOST_PIDS], pid_count, lost_before;
static Count before;

static double seconds_of(clockid_t clock) {
    struct timespec time;
    return clock_gettime(clock, &time) ? -1 : (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

double now(void) { return seconds_of(CLOCK_MONOTONIC); }

/* The kernel's CPU clock of a process, including threads that have ended. */
static double cpu_of(int pid) { return seconds_of((clockid_t)((~(unsigned)pid << 3) | 2)); }

_Noreturn void fail(const char *why) {
    fprintf(stderr, "swarm: %s\n", why);
    exit(1);
}

static void cut(void) {
    struct linger reset = {.l_onoff = 1};
    int were = swarm.open;
    for (int i = 0; i < swarm.total; i++)
        if (swarm.viewers[i].state == OPEN) {
            setsockopt(swarm.viewers[i].fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
            forget(&swarm.viewers[i], AWAY);
        }
    printf("{\"cut\":%d}\n", were);
}

static void begin_measure(char *words) {
    task = MEASURE;
    pid_count = 0;
    double seconds = strtod(words, &words);
    for (int pid; pid_count < MOST_PIDS && (pid = (int)strtol(words, &words, 10)) > 0;) pids[pid_count++] = pid;
    for (int i = 0; i < swarm.total; i++) swarm.viewers[i].counted = 0;
    for (int i = 0; i < pid_count; i++) pid_cpu[i] = cpu_of(pids[i]);
    own_cpu = seconds_of(CLOCK_PROCESS_CPUTIME_ID);
    before = swarm.count;
    lost_before = swarm.lost;
    since = now();
    until = since + seconds;
}

static void end_measure(void) {
    unsigned long least = swarm.open ? ~0UL : 0;
    for (int i = 0; i < swarm.total; i++)
        if (swarm.viewers[i].state == OPEN && swarm.viewers[i].counted < least) least = swarm.viewers[i].counted;
    const Count *after = &swarm.count;
    printf("{\"viewers\":%d,\"lost\":%d,\"seconds\":%.6f,\"swarm_cpu\":%.6f,", swarm.open, swarm.lost - lost_before,
           now() - since, seconds_of(CLOCK_PROCESS_CPUTIME_ID) - own_cpu);
    printf("\"frames\":%lu,\"least\":%lu,\"payload_bytes\":%lu,\"bytes\":%lu,", after->messages - before.messages,
           least, after->payload - before.payload, after->bytes - before.bytes);
    printf("\"pings\":%lu,\"closes\":%lu,\"cpu\":[", after->frames[PING] - before.frames[PING],
           after->frames[CLOSE] - before.frames[CLOSE]);
    for (int i = 0; i < pid_count; i++) {
        double cpu = cpu_of(pids[i]);
        if (cpu < 0) fail("a process to measure has ended");
        printf("%s%.6f", i ? "," : "", cpu - pid_cpu[i]);
    }
    printf("]}\n");
    task = NOTHING;
}

static void begin_connect(const char *words) {
    int more;
    if (sscanf(words, "%d %d %d", &more, &at_once, &wait_first) != 3) fail("connect needs three numbers");
    if (swarm.total + more > MOST) fail("too many viewers");
    task = CONNECT;
    swarm.refused = 0;
    opened_after = -1;
    since = now();
    while (more--) swarm.away[swarm.away_count++] = swarm.total++;
}

static void go_on_connecting(void) {
    double passed = now() - since;
    if (passed > PATIENCE) fail("not all viewers connected and received a frame in time");
    while (swarm.away_count && swarm.opening < at_once) start(&swarm.viewers[swarm.away[--swarm.away_count]]);
    int expected = swarm.total - swarm.lost;
    if (swarm.open < expected) return;
    if (opened_after < 0) opened_after = passed;
    if (wait_first && swarm.served < expected) return;
    printf("{\"viewers\":%d,\"lost\":%d,\"open_seconds\":%.6f,\"seconds\":%.6f,\"refused\":%lu}\n", swarm.open,
           swarm.lost, opened_after, passed, swarm.refused);
    task = NOTHING;
}

static void take_notes(const char *file) {
    if (swarm.notes && fclose(swarm.notes)) fail("writing the notes failed");
    swarm.notes = NULL;
    if (*file && !(swarm.notes = fopen(file, "wb"))) fail(strerror(errno));
    printf("{\"noting\":%s}\n", swarm.notes ? "true" : "false");
}

static void obey(void) {
    static char line[4096];
    if (!fgets(line, sizeof line, stdin)) exit(0);
    line[strcspn(line, "\n")] = 0;
    if (!strncmp(line, "connect ", 8)) begin_connect(line + 8);
    else if (!strncmp(line, "measure ", 8)) begin_measure(line + 8);
    else if (!strncmp(line, "note ", 5)) take_notes(line + 5);
    else if (!strcmp(line, "note")) take_notes("");
    else if (!strcmp(line, "cut")) cut();
    else fail("unknown command");
}

int main(int argc, char **argv) {
    if (argc < 3) fail("usage: swarm PORT PATH [PATHS [deflate]]");
    swarm.port = atoi(argv[1]);
    swarm.path = argv[2];
    swarm.paths = argc > 3 ? atoi(argv[3]) : 0;
    swarm.deflates = argc > 4;
    swarm.epoll = epoll_create1(0);
    setvbuf(stdin, NULL, _IONBF, 0); /* epoll does not see commands in a stdio buffer */
    setvbuf(stdout, NULL, _IOLBF, 0);
    struct epoll_event events[EVENTS], commands = {.events = EPOLLIN};
    if (epoll_ctl(swarm.epoll, EPOLL_CTL_ADD, STDIN_FILENO, &commands)) fail("commands must come through a pipe");
    for (;;) {
        if (task == CONNECT) go_on_connecting();
        if (task == MEASURE && now() >= until) end_measure();
        int ready = epoll_wait(swarm.epoll, events, EVENTS, task == NOTHING ? -1 : 10);
        for (int i = 0; i < ready; i++)
            if (events[i].data.ptr) handle(events[i].data.ptr);
            else obey();
    }
}
