/* upstream.h - a pod's own resolvers, asked from the pod's network namespace.
 *
 * Questions go as they came, but with a random id; answers come back unchanged.  The sockets are
 * the broker's (security-rules.md G1), connected to one server each, so the kernel drops everybody
 * else's answers.  A spoofer must guess 16 bits of the id and the port.  The order of the servers
 * differs for each question.  The next one is asked when one cannot be reached, fails, or is silent
 * for a second (istio-agent.md 7.5, but for the second).
 */
#pragma once
#include "base/dns/message.h"
#include "worker/link/calls.h"
#include <netinet/in.h>
#include <sys/socket.h>

struct dns_upstream;
struct dns_ask; /* one question under way */

enum { DNS_SERVERS_MAX = 8, DNS_ASKS_MAX = 1024, DNS_TCP_ASKS_MAX = 16 };

struct dns_server {
	int family;
	struct dns_address address;
};
struct dns_upstream_options {
	struct loop *loop;
	struct link *link;
	const struct uuid *pod;
	const struct dns_server *servers; /* copied */
	size_t nservers;                  /* 1 and more */
	int64_t timeout_ms;               /* of a question in all */
	bool
	    parallel; /* questions by UDP go to all servers at once; the first good answer counts */
};
struct dns_upstream *dns_upstream_new(const struct dns_upstream_options *o);
void dns_upstream_free(struct dns_upstream **u);

/* `data` is valid during the call: an answer, cut to what the client of UDP takes; "server failure"
 * when there was none. */
typedef void (*dns_asked)(void *ctx, const uint8_t *data, size_t size);
/* `q` is copied.  -1: too many are under way. */
int dns_upstream_ask(struct dns_upstream *u, struct dns_ask **slot, const struct dns_query *q,
    bool tcp, dns_asked done, void *ctx);
void dns_ask_cancel(struct dns_ask **a);
void dns_ask_refuse(struct dns_ask *a); /* its answer is "server failure", now */

struct dns_upstream_counts {
	uint64_t asked, failed; /* questions; without an answer */
	uint64_t foreign;       /* answers that match no question */
	double seconds;         /* until an answer came, in all */
};
const struct dns_upstream_counts *dns_upstream_counts(const struct dns_upstream *u);
