/* Signs of life between nodes: one datagram a second.
 *
 * A node that loses its power or its network sends no goodbye: MPI waits for it, and so does the launcher, for minutes. So
 * nodes stand in a ring, and one rank of each sends to the next and listens to the one before. Who was heard once and then
 * is silent for long is lost. A node that was never heard is not judged: a site may well let no datagrams through.
 *
 * A card says where and by which secret a node hears; the cards travel over MPI at the start. A node sends to all addresses
 * of the next one, as nobody knows which of its networks both can reach. IPv4 only. No MPI in here, and no threads: one
 * thread at a time calls these. */
#ifndef SHARDRUN_PARALLEL_HEARTBEAT_H
#define SHARDRUN_PARALLEL_HEARTBEAT_H

#include "base/err.h"

#include <stdint.h>

enum { HEARTBEAT_ADDRESSES = 8, HEARTBEAT_SECRET_BYTES = 16 };

struct heartbeat_card {
	unsigned char secret[HEARTBEAT_SECRET_BYTES];
	uint32_t addresses[HEARTBEAT_ADDRESSES];   /* network byte order, 0: no more */
	uint16_t port;                             /* network byte order, 0: this node does not listen */
};

struct heartbeat;

/* Opens the port; *card is for the node that comes before this one in the ring. */
enum err heartbeat_open(struct heartbeat_card *card, struct heartbeat **out);
/* From now on signs go to the owner of this card, which is copied. */
void heartbeat_send_to(struct heartbeat *h, const struct heartbeat_card *next);
/* Sends if it is time, and listens; call it several times a second. Gives how long the sender has been silent, 0 when it
 * was never heard. Time between two calls counts for one second at most: a job that Slurm suspends is not lost when it goes
 * on. now_us is clock_us(). */
long long heartbeat_turn(struct heartbeat *h, long long now_us);
/* Tells the next node that the job ends, so that it need not wait for silence. */
void heartbeat_end(struct heartbeat *h);
/* 1 when the node before told so, as seen by heartbeat_turn. */
int heartbeat_was_told(const struct heartbeat *h);
void heartbeat_close(struct heartbeat *h);   /* takes NULL */

#endif
