/* served.c - see served.h. */
#include "served.h"

const char *served_word(enum served s)
{
	static const char *const words[] = {[SERVED_YES] = "yes",
	    [SERVED_UNASKED] = "unasked",
	    [SERVED_HELD] = "held",
	    [SERVED_NO] = "no"};

	return words[s];
}
