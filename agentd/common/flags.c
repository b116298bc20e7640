/* flags.c - the list, and how a name is looked up in it.
 *
 * Names are compared as they are spelt where they stand: --log-level on the command line, log_level
 * in the file.  A name is never abbreviated.
 */
#include "flags.h"
#include "err.h"
#include "nearest.h"
#include <limits.h>
#include <stdbool.h>
#include <string.h>

enum { NAME_SIZE = 40 };

#define BROKER(name, kind, value, start, help)                                                     \
	{                                                                                          \
		name, FLAG_BROKER, kind, value, start, help                                        \
	}
#define BOTH(name, kind, value, start, help)                                                       \
	{                                                                                          \
		name, FLAG_BOTH, kind, value, start, help                                          \
	}
#define TEXT(name, start, help)                                                                    \
	{                                                                                          \
		name, FLAG_WORKER, FLAG_TEXT, "TEXT", start, help                                  \
	}
#define NUMBER(name, start, help)                                                                  \
	{                                                                                          \
		name, FLAG_WORKER, FLAG_NUMBER, "N", start, help                                   \
	}

const struct flag flags_list[] = {
    BROKER("run", FLAG_TEXT, "DIR", "/run/agentd", "pods' directories, admin.sock"),
    BROKER("manifests", FLAG_TEXT, "DIR", NULL,
	"<uid>.yaml and <uid>/token of each pod (/etc/agentd/pods.d; none with --kubelet-root)"),
    BROKER("identity-dir", FLAG_TEXT, "DIR", "/var/lib/agentd/identity",
	"keys and certificates of manifests with identity: certificate, for after a reboot"),
    BROKER("kubelet-root", FLAG_TEXT, "DIR", NULL,
	"serve pods' CSI volumes of the kubelet of this directory"),
    BROKER("config", FLAG_TEXT, "FILE", "/etc/agentd/agentd.yaml", "the settings"),
    BROKER("root-file", FLAG_TEXT, "INDEX=FILE", NULL,
	"root certificates of control plane INDEX; may be repeated"),
    BROKER("crl-file", FLAG_TEXT, "INDEX=FILE", NULL,
	"revocation list of control plane INDEX; may be repeated"),
    BROKER("cgroup-root", FLAG_TEXT, "DIR", NULL, "where cgroup v2 is mounted (found by itself)"),
    BROKER("kubepods", FLAG_TEXT, "NAME", NULL,
	"the kubelet's cgroup of all pods: a path below the cgroup root (the usual ones)"),
    BROKER("worker-user", FLAG_TEXT, "NAME", "agentd",
	"user or uid the worker runs as; 1338 if there is no such user"),
    BROKER("max-pods", FLAG_NUMBER, "N", "1024", "how many pods at most; others are refused"),
    BROKER("take-over", FLAG_SWITCH, NULL, NULL,
	"take over from the running agentd, with all it holds"),
    BROKER("linger", FLAG_SWITCH, NULL, NULL,
	"wait for SIGTERM after a hand-over; for a supervisor that restarts what ends"),
    BROKER("take-over-s", FLAG_NUMBER, "SECONDS", "60",
	"how long after --take-over all that was served may take to be served again; then it is "
	"given back"),
    BROKER("alive", FLAG_TEXT, "PATH", NULL,
	"a socket where agentctl alive and agentctl ready --of ask this very agentd"),
    BROKER("no-privsep", FLAG_SWITCH, NULL, NULL,
	"leave the worker root's rights: for debugging only"),
    BROKER("redirect-cgroup", FLAG_TEXT, "NAME", NULL,
	"the cgroup above all pods: a path below the cgroup root (the root; without manifests "
	"--kubepods)"),
    BROKER("redirect-allow", FLAG_TEXT, "LIST", "permissive,exclusions,probes",
	"what pods may ask for beside strict capture: these; strict: nothing; "
	"KEY=NUMBER: such a port or id in place of istio's"),
    BROKER("probes-cgroup", FLAG_TEXT, "NAME", NULL,
	"a cgroup above the kubelet, which is let in to pods' probe ports: a path below the cgroup "
	"root (the root)"),
    BROKER("bpffs", FLAG_TEXT, "DIR", "/sys/fs/bpf", "where eBPF programs are pinned"),
    BROKER("metrics", FLAG_TEXT, "ADDR:PORT", NULL,
	"serve /metrics and /healthz there, to anybody who can reach it"),
    BROKER("check", FLAG_SWITCH, NULL, NULL,
	"say what kernel and node offer, check the configuration, end; alone: with the flags of "
	"the agentd that runs"),
    BROKER("connect", FLAG_SWITCH, NULL, NULL,
	"with --check: look up, dial and greet each control plane, and look at its certificate"),
    BROKER("redirect-uninstall", FLAG_SWITCH, NULL, NULL,
	"detach and forget all eBPF programs of all agentds, end"),
    BROKER("redirect-gate", FLAG_SWITCH, NULL, NULL,
	"shut the pods of manifests that can only be strict until they are redirected, end"),
    BROKER("redirect-await", FLAG_TEXT, "UID", NULL,
	"end when this pod's traffic is redirected: for the unit of an app"),
    BROKER("check-state", FLAG_SWITCH, NULL, NULL, NULL),
    BROKER("version", FLAG_SWITCH, NULL, NULL, "say the version and end"),
    BROKER("help", FLAG_SWITCH, NULL, NULL, "this text"),

    BOTH("log-level", FLAG_TEXT, "TEXT", "info", "levels: info, or sds:debug,default:warn"),
    BOTH("log-json", FLAG_BOOLEAN, NULL, "false", "log JSON instead of logfmt"),
    BOTH("redirect", FLAG_OPTIONAL, "[=MODE]", "none",
	"how pods that name no mode are redirected: ebpf, istio-cni, istio-init or none; the flag "
	"alone: ebpf for the pods that name it"),

    {"ready-anyway", FLAG_WORKER, FLAG_BOOLEAN, NULL, "false",
	"be ready though pods lost what the agentd before this one gave them"},
    TEXT("node-name", "", "name of this node; empty: the host's name"),
    TEXT("host-ip", "", "address of this node, for pods whose settings say $(HOST_IP)"),
    TEXT("istio-namespace", "istio-system", "namespace istiod runs in"),
    TEXT("cluster-domain", "cluster.local", "DNS domain of the cluster"),
    TEXT("ip-family", "ipv4", "ipv4 or ipv6: for a pod whose addresses are not known yet"),
    NUMBER("secret-ttl-min-s", "3600", "shortest SECRET_TTL a pod may ask for"),
    NUMBER("secret-ttl-max-s", "86400", "longest SECRET_TTL a pod may ask for"),
    NUMBER("certificate-reissue-min-s", "300",
	"pause between two certificates of one service account; a third of their life if "
	"that is shorter"),
    NUMBER("certificate-linger-s", "300", "how long a certificate is kept after its last pod"),
    {"pcds", FLAG_WORKER, FLAG_BOOLEAN, NULL, "false",
	"take further trust anchors from istiod (its ISTIO_MULTIROOT_MESH)"},
    TEXT("certificate-scope", "service-account",
	"pods that share a certificate; pod: none do, and no pod can ask otherwise"),
    NUMBER("csr-per-second", "10",
	"certificate requests to one control plane; a burst may have twice as many"),
    TEXT("attest", "prefer",
	"require: refuse a connection whose pod cannot be proven; prefer: flag it"),
    TEXT("state-keys", "tmpfs",
	"where private keys outlive the worker; memory: they are lost if the broker dies, too"),
    TEXT("redirect-policy", "strict",
	"strict: nothing from outside reaches a pod before its Envoy can take it; or permissive"),
    TEXT("redirect-accelerate", "off", "off: " FLAGS_ACCELERATE_GONE),
    NUMBER("publish-wait-ms", "2000", "how long a pod's start waits for its first certificate"),
    TEXT("dns-upstream", "",
	"resolvers for names that istiod does not know: IP addresses with commas; for pods with "
	"redirect_dns and without dns_servers"),
    TEXT("certificate-directories", "/etc",
	"where certificates in files are followed however they are rotated, for manifests' pods: "
	"absolute paths with commas"),
    NUMBER("pod-connections", "32", "connections of one pod at a time"),
    NUMBER("pod-streams", "256", "streams of one pod at a time"),
    NUMBER("pod-message-mib", "4", "largest message from a pod's Envoy"),
    NUMBER("pod-memory-mib", "32", "memory for what a pod's Envoy is sending"),
    NUMBER(
	"pods-memory-mib", "48", "memory for what all pods' connections hold beyond their shares"),
    NUMBER("push-memory-mib", "64",
	"memory for all pods' pushes that come from the control planes or wait for Envoys"),
    NUMBER("pod-queued-mib", "8", "bytes that wait for a pod's Envoy to read"),
    NUMBER("pod-requests-per-second", "100", "requests of one pod; above it they are read later"),
    NUMBER("pod-requests-burst", "200", "requests of one pod at once"),
    NUMBER(
	"pods-requests-per-second", "500", "requests of all pods in a second, beyond ten of each"),
    NUMBER("pod-silent-s", "60", "how long a connection may have no stream"),
    NUMBER("pod-header-kib", "16", "headers of one stream"),
    {"control-planes", FLAG_WORKER, FLAG_LIST, NULL, NULL,
	"the istiods that certificates come from"},
};
const unsigned flags_count = sizeof(flags_list) / sizeof(*flags_list);

/* --- names --- */

static const char *key_of(const struct flag *f, char key[NAME_SIZE])
{
	snprintf(key, NAME_SIZE, "%s", f->name);
	for (char *c = key; *c; c++)
		*c = *c == '-' ? '_' : *c;
	return key;
}

static bool is_argument(const struct flag *f, const char *name, size_t length)
{
	return f->kind != FLAG_LIST && strlen(f->name) == length && !strncmp(f->name, name, length);
}

const struct flag *flags_of_argument(const char *argument, const char **value)
{
	size_t length = strcspn(argument, "=");

	*value = argument[length] ? argument + length + 1 : NULL;
	if (strncmp(argument, "--", 2) != 0)
		return NULL;
	for (unsigned i = 0; i < flags_count; i++)
		if (is_argument(&flags_list[i], argument + 2, length - 2))
			return &flags_list[i];
	return NULL;
}

const struct flag *flags_of_key(const char *key)
{
	char own[NAME_SIZE];

	for (unsigned i = 0; i < flags_count; i++)
		if (!strcmp(key_of(&flags_list[i], own), key))
			return &flags_list[i];
	return NULL;
}

int flags_log_json(int argc, char **argv)
{
	int json = -1;
	const char *value;

	for (int i = 1; i < argc; i++) {
		const struct flag *f = flags_of_argument(argv[i], &value);

		if (f && !strcmp(f->name, "log-json"))
			json = !value || !strcmp(value, "true");
	}
	return json;
}

/* --- what is misspelt --- */

static const struct flag *nearest_to(const char *wanted, bool in_file)
{
	const struct flag *found = NULL;
	unsigned least = UINT_MAX;
	char key[NAME_SIZE];

	for (unsigned i = 0; i < flags_count; i++) {
		const struct flag *f = &flags_list[i];
		if (!f->help || (f->kind == FLAG_LIST && !in_file))
			continue;
		unsigned d = nearest_distance(wanted, in_file ? key_of(f, key) : f->name);
		if (d < least) {
			least = d;
			found = f;
		}
	}
	return found;
}

int flags_refuse_argument(const char *argument, struct err *e)
{
	char shown[80], name[80];

	err_printable(shown, sizeof(shown), argument, (unsigned)strcspn(argument, "="));
	snprintf(name, sizeof(name), "%s", shown + strspn(shown, "-"));
	return err_set(e, ERR_INVALID, "%s: no such flag; nearest: --%s", shown,
	    nearest_to(name, false)->name);
}

int flags_refuse_key(const char *key, struct err *e)
{
	const struct flag *f = flags_of_key(key);
	char shown[80], own[NAME_SIZE];

	err_printable(shown, sizeof(shown), key, (unsigned)strlen(key));
	if (f && f->help)
		return err_set(e, ERR_INVALID,
		    "%s: is no key of this file, but the flag --%s of agentd's command line", shown,
		    f->name);
	f = nearest_to(key, true);
	if (f->whose == FLAG_BROKER)
		return err_set(e, ERR_INVALID,
		    "%s: no such key; nearest: the flag --%s of agentd's command line", shown,
		    f->name);
	return err_set(e, ERR_INVALID, "%s: no such key; nearest: %s", shown, key_of(f, own));
}

/* --- help --- */

void flags_help(FILE *out, enum flag_whose whose)
{
	char usage[64];

	for (unsigned i = 0; i < flags_count; i++) {
		const struct flag *f = &flags_list[i];
		bool is_key = f->whose != FLAG_BROKER;
		if (!f->help || f->kind == FLAG_LIST || is_key != (whose != FLAG_BROKER))
			continue;
		snprintf(usage, sizeof(usage), "--%s%s%s", f->name,
		    f->value && f->kind != FLAG_OPTIONAL ? " " : "", f->value ? f->value : "");
		(void)fprintf(out, "  %-31s %s", usage, f->help);
		if (f->kind != FLAG_BOOLEAN && f->start && *f->start)
			(void)fprintf(out, " (default %s)", f->start);
		(void)fputc('\n', out);
	}
}
