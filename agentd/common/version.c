/* version.c - compiled anew when the text changes; nothing else has to be. */
#include "version.h"

const char version_text[] = AGENTD_VERSION;
