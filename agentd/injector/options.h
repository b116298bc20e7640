/* options.h - the command line of agentd-injector. */
#pragma once
#include <stdbool.h>
#include <stdio.h>

struct err;

struct options {
	const char *listen;        /* ADDR:PORT */
	const char *config;        /* {values, meshConfig, agentd}; NULL: none */
	const char *values, *mesh; /* one part each, and wins over the same of `config` */
	const char *tls_cert, *tls_key, *client_ca; /* certificates from files: both or neither */
	const char *server_name;                    /* that API servers ask for; NULL: not known */
	/* The certificate is made here, of a CA in a Secret (keeper.h); all or none, and not with
	 * the files above. */
	const char *secret, *webhook;
	const char *kube_dir; /* where the pod's token is */
	const char *look_ms;  /* for tests: how often it looks at both */
	const char *log_level;
	bool log_json, help, version;
};

/* -1: usage, the error says what. */
int options_read(struct options *o, int argc, char **argv, struct err *e);
void options_help(FILE *out);
