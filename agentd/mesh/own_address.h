/* own_address.h - the address of a machine, as its owner says it: one that others can dial. */
#pragma once
#include <arpa/inet.h>
#include <stdbool.h>

/* In the kernel's spelling; false: no unicast address, or one of the loopback or the link. */
bool own_address_read(const char *text, char out[INET6_ADDRSTRLEN]);
