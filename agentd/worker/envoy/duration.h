/* duration.h - Go's notation of a duration, as Istio's settings use it: "45s", "1h30m", "0.5s". */
#pragma once
#include <stdbool.h>
#include <stdint.h>

/* Milliseconds, what is below is cut.  No sign; a unit (ns us ms s m h) after each number, but "0".
 */
bool duration_parse(const char *text, int64_t *ms);
