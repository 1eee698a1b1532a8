#include "base/clock.h"

#include <sched.h>
#include <time.h>

long long clock_us(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000LL + t.tv_nsec / 1000;
}

void clock_sleep_us(long long us)
{
	struct timespec t = { us / 1000000, us % 1000000 * 1000 };
	nanosleep(&t, NULL);
}

void clock_wait(unsigned *round)
{
	enum { SPINS = 200, YIELDS = 2000 };
	unsigned r = ++*round;
	if (r < SPINS)
		return;
	if (r < YIELDS)
		sched_yield();
	else
		clock_sleep_us(r < 4 * YIELDS ? 50 : 200);
}
