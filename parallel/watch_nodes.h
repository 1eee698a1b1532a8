/* Between watch.c and watch_nodes.c; nobody else includes this. The watchdog's thread calls these. */
#ifndef SHARDRUN_PARALLEL_WATCH_NODES_H
#define SHARDRUN_PARALLEL_WATCH_NODES_H

/* Sends a sign of life and listens; several times a second. Gives the seconds that the node before this one has been silent
 * when that is too long, else 0. */
int watch_nodes_turn(void);
/* Whether that node said that the job ends. */
int watch_nodes_told(void);
/* Says so to the next node. */
void watch_nodes_end(void);
/* That node, for a sentence: "host n3 (ranks 4-5)". */
const char *watch_nodes_name(void);
/* When the watchdog has ended. */
void watch_nodes_close(void);

#endif
