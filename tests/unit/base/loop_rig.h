/* loop_rig.h - a real loop that runs for a while. */
#pragma once
#include <stdint.h>

struct loop;

void run_ms(struct loop *l, int64_t ms);
