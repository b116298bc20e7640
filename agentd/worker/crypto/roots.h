/* roots.h - root certificates as one text: each once, in the order of their PEM text.
 *
 * So ROOTCA is the same for the same set, whoever sent which root in which order
 * (istio-agent.md 0.13).
 */
#pragma once

/* Both are texts of x509_normalise_pem(); `b` may be NULL. */
char *roots_union(const char *a, const char *b);
