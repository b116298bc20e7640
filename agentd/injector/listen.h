/* listen.h - the port that API servers ask. */
#pragma once
struct err;

/* "10.0.0.1:15017", "[fd00::1]:15017"; "[::]:PORT" is both families, IPv4 alone where there is no
 * IPv6.  A listening descriptor; -1: refused. */
int listen_on(const char *text, struct err *e);
