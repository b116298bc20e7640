/* watch.h - a screen that is drawn again, with changes marked. */
#pragma once
#include <stdio.h>

/* `before`: what was drawn there; NULL: nothing was, and nothing is marked.  Compared is each place
 * of each line, as a reader does it. */
void ctl_watch_draw(FILE *out, const char *before, const char *now);
