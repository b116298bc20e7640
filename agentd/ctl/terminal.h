/* terminal.h - what agentctl prints steers no terminal, whatever a pod, an Envoy, istiod or a file
 * has for a name. */
#pragma once
#include <stdio.h>

/* From now on what goes to stdout and stderr has no character but printable ASCII, line feeds and
 * tabs: any other byte is a '?'. */
void terminal_guard(void);
/* A text that is caught before it is drawn: the same is done to its bytes. */
void terminal_clean(char *text, size_t len);
/* The standard output as it is, for what has to be byte for byte, and for our own escapes. */
FILE *terminal_raw(void);
