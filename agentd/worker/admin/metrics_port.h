/* metrics_port.h - GET /metrics and GET /healthz for anybody on the network; nothing else is there,
 * nothing can be changed, and nothing that is secret is shown (security-rules.md 9).
 */
#pragma once
struct loop;
struct metrics_port;

struct metrics_port_rig {
	void (*before)(void *ctx); /* brings the gauges up to date */
	/* NULL: healthy.  A literal. */
	const char *(*why_not)(void *ctx);
	void *ctx;
};
struct metrics_port *metrics_port_new(
    struct loop *l, int listen_fd, const struct metrics_port_rig *rig); /* takes the fd */
/* Scrapes wait for the next worker. */
void metrics_port_stop_accepting(struct metrics_port *p);
void metrics_port_free(struct metrics_port **p);
