/* roots.h - root certificates as one text: each once, in the order of their PEM text.
 *
 * So the same set gives the same ROOTCA, in whatever order the roots came (istio-agent.md 0.13).
 */
#pragma once

/* Both are texts of x509_normalise_pem(); `b` may be NULL. */
char *roots_union(const char *a, const char *b);
