/* endpoint.h - the address and port of --metrics, as text. */
#pragma once
#include "common/err.h"
#include <sys/socket.h>

/* "10.0.0.1:15091" or "[fd00::1]:15091"; brackets may stand around either, for a chart that does
 * not know the family.  -1: refused. */
int broker_endpoint_parse(const char *text, struct sockaddr_storage *out, struct err *e);
