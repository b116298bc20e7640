/* ca_client.h - a CA that answers when the test says so; several requests wait in order. */
#pragma once
#include "worker/certs/ca_client.h"

unsigned fake_ca_asked(const struct ca_client *c);   /* how often, ever */
unsigned fake_ca_pending(const struct ca_client *c); /* not answered, not cancelled */
const struct ca_request *fake_ca_request(const struct ca_client *c); /* the oldest waiting one */
/* End the oldest waiting one. */
void fake_ca_answer(struct ca_client *c, const char *const *chain, size_t n);
void fake_ca_fail(struct ca_client *c, int code, const char *why);
