/* Time, for reports and for waiting. Nothing that decides a result may read it. */
#ifndef SHARDRUN_BASE_CLOCK_H
#define SHARDRUN_BASE_CLOCK_H

long long clock_us(void);            /* monotonic */
void clock_sleep_us(long long us);
/* One round of waiting for something: spins first, then yields the core, then sleeps (at most 200 us). *round starts
 * at 0 and is the caller's. */
void clock_wait(unsigned *round);

#endif
