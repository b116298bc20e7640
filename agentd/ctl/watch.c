/* watch.c - see watch.h. */
#include "watch.h"
#include <stdbool.h>
#include <string.h>

#define CLEAR "\033[H\033[2J" /* home, and nothing on the screen */
#define MARK "\033[7m"
#define UNMARK "\033[27m"

/* Where the next line begins, or the end. */
static const char *after_line(const char *at)
{
	at += strcspn(at, "\n");
	return *at ? at + 1 : at;
}

/* One line of `now`; `before` is the same line of the last time, or "". */
static void draw_line(FILE *out, const char *before, const char *now)
{
	bool marked = false;

	for (; *now && *now != '\n'; now++) {
		const bool there = *before && *before != '\n';
		const bool differs = there ? *before != *now : *now != ' ';

		if (differs != marked)
			fputs(differs ? MARK : UNMARK, out);
		marked = differs;
		before += there;
		fputc(*now, out);
	}
	fputs(marked ? UNMARK "\n" : "\n", out);
}

void ctl_watch_draw(FILE *out, const char *before, const char *now)
{
	fputs(CLEAR, out);
	if (!before)
		fputs(now, out);
	for (; before && *now; now = after_line(now), before = after_line(before))
		draw_line(out, before, now);
}
