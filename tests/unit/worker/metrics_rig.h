/* metrics_rig.h - the page of metrics, looked through by a test. */
#pragma once
#include <stdbool.h>

bool metrics_say(const char *text);   /* it has this part, a line or less */
void assert_metric(const char *text); /* or the test fails, and shows the page */
