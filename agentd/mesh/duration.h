/* duration.h - Go's notation of a duration, as Istio's settings use it: "45s", "1h30m", "0.5s". */
#pragma once
#include <stdbool.h>
#include <stdint.h>

/* Milliseconds; smaller parts are cut.  No sign; each number but "0" has a unit (ns us ms s m h).
 */
bool duration_parse(const char *text, int64_t *ms);
