/* clock.h - the kernel's monotonic clocks in the test's hand: seconds of them take none.
 *
 * They run as the kernel's do, ahead of them by what the test let pass; or they stand still.  The
 * wall clock is the kernel's own.
 */
#pragma once
#include <stdint.h>

void fake_clock_pass_ms(int64_t ms);
/* So much passes each time that they are read, as on a machine where others have the core; 0: none.
 */
void fake_clock_hurry(int64_t ms);
/* They stand at a whole second from now on; time passes by fake_clock_pass_ms() alone. */
void fake_clock_stop(void);
