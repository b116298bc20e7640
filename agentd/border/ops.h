/* ops.h - the operations of the border: the worker asks, the broker answers.
 *
 * Each has a row, which both ends read.  The broker looks at a request only when it has the shape
 * of its row.  The worker takes the answer as its row says.
 *
 * A new operation is a row at the end, its function in broker/requests/requests.c, its line in
 * worker/link/answers.c, and its test.  link_ask() asks for it, or a function beside link.h's.
 */
#pragma once

/* Whose uid the request carries. */
enum link_whose {
	LINK_NO_POD,
	LINK_ANY_POD,   /* added or not; the row says what else may stand there */
	LINK_ADDED_POD, /* the broker refuses it for any other one */
};
enum link_answer {
	LINK_REPLIED,  /* one reply: yes, or why not */
	LINK_DEFERRED, /* the same, and a yes comes when it is done */
	LINK_GIVEN,    /* one reply, and a yes carries a descriptor */
	LINK_LISTED,   /* packets under the id of the request, then the reply */
	LINK_LATER,    /* a yes is no answer yet: packets under the id of the request follow */
	LINK_SILENT,   /* none: it is an answer itself */
};

/* X(operation, descriptors of the request, whose pod, answer, "the broker refused to ...") */
/* clang-format off */
#define LINK_OPS(X) \
	/* Makes <run>/pods/<uid>/mount, or adopts it.  ESTALE: so it did, but the pod's \
	 * containers have the previous one.  Reply: arg = seconds for which its connections \
	 * have to wait, because they held much when a worker was killed. */ \
	X(POD_ADD, 0, ANY_POD, REPLIED, "make the pod's directory") \
	/* Closes its listeners, ends its follows, removes the directory. */ \
	X(POD_REMOVE, 0, ANY_POD, REPLIED, "remove the pod's directory") \
	/* kind = link_listener; the broker keeps a copy of the socket. */ \
	X(LISTEN, 0, ADDED_POD, GIVEN, "listen for the pod") \
	/* arg = link_attest, an accepted unix stream: is it this pod's?  Learns its netns.  Reply: \
	 * cookie, cgroup id (0: `why` it is not known), addresses. */ \
	X(PEER_OF, 1, ADDED_POD, REPLIED, "attest the pod's peer") \
	/* kind = link_file, a sealed memfd <= 1 MiB: renamed into mount/. */ \
	X(WRITE, 1, ADDED_POD, REPLIED, "write the pod's file") \
	/* kind = link_followed, uid or arg = plane index: LINK_FILE now and at each change. */ \
	X(FOLLOW, 0, ANY_POD, LATER, "follow a file") \
	/* arg = id of the LINK_FOLLOW. */ \
	X(UNFOLLOW, 0, NO_POD, REPLIED, "end a follow") \
	/* Every pod of the node was added and is served: what an earlier worker had and nobody \
	 * added again goes.  Once in a worker's life. */ \
	X(READY, 0, NO_POD, REPLIED, "be told that all is ready") \
	/* arg of the LINK_PING: the worker's threads turn. */ \
	X(PONG, 0, NO_POD, SILENT, "take the answer to its ping") \
	/* kind = link_state, state_id, a sealed memfd <= 1 MiB. */ \
	X(STATE_PUT, 1, NO_POD, REPLIED, "keep what it was given") \
	/* kind, state_id; not there: fine. */ \
	X(STATE_DEL, 0, NO_POD, REPLIED, "forget what was kept") \
	/* kind: one LINK_STATE for each entry. */ \
	X(STATE_LIST, 0, NO_POD, LISTED, "list what was kept") \
	/* A memfd of struct redirect_rules.  LINK_REDIRECTED says whether they are in force. */ \
	X(REDIRECT_SET, 1, ADDED_POD, LATER, "redirect the pod's traffic") \
	/* Its traffic is its own again; nothing there: fine. */ \
	X(REDIRECT_DEL, 0, ADDED_POD, REPLIED, "end the pod's redirection") \
	/* The map of all counters. */ \
	X(REDIRECT_COUNTERS, 0, NO_POD, GIVEN, "show the counters") \
	/* A memfd of struct redirect_question.  Reply: arg = redirect_verdict. */ \
	X(REDIRECT_EXPLAIN, 1, ADDED_POD, REPLIED, "explain a verdict") \
	/* uid, or zeroes for all: a pipe of struct link_trace; closing it ends the trace. */ \
	X(REDIRECT_TRACE, 0, ANY_POD, GIVEN, "trace traffic") \
	/* kind = link_dial, arg = AF_INET* | port << 16: a socket of the pod's. */ \
	X(DIAL, 0, ADDED_POD, GIVEN, "make a socket of the pod's") \
	/* A stream accepted on csi.sock: is the node's kubelet at its other end? */ \
	X(CALLER, 1, NO_POD, REPLIED, "know its caller") \
	/* volume: the pod's directory is mounted where the kubelet wants it. */ \
	X(PUBLISH, 0, ADDED_POD, REPLIED, "mount the pod's volume") \
	/* volume: and is there no more; nothing there: fine. */ \
	X(UNPUBLISH, 0, ANY_POD, REPLIED, "unmount the pod's volume") \
	/* One LINK_VOLUME for each that the kubelet has. */ \
	X(VOLUMES, 0, NO_POD, LISTED, "list the volumes") \
	/* arg: the kubelet registered us, or refused to (NotifyRegistrationStatus). */ \
	X(CSI_REGISTERED, 0, NO_POD, REPLIED, "hear what the kubelet registered") \
	/* kind = link_log, arg = log_level: how the broker logs from now on. */ \
	X(LOG, 0, NO_POD, REPLIED, "log as the worker does") \
	/* arg = KiB that the pod's connections hold of the worker's memory, now. */ \
	X(HOLDS, 0, ADDED_POD, REPLIED, "hear what the pod holds") \
	/* A memfd of struct redirect_names_told: what istiod told the pods. */ \
	X(REDIRECT_NAMES, 1, NO_POD, REPLIED, "know the names of the pods") \
	/* Its manifest was refused, and it would be strict: it is shut until it is asked for. */ \
	X(REDIRECT_SHUT, 0, ANY_POD, REPLIED, "shut the strict pod whose manifest was refused") \
	/* A sealed memfd <= 64 KiB: the pod's file in --identity-dir, for LINK_FOLLOW_KEPT.  Of a \
	 * manifest's pod only.  EAGAIN: too many at once. */ \
	X(IDENTITY_PUT, 1, ADDED_POD, DEFERRED, "keep the pod's certificate on disk") \
	/* arg = pods that lost what an earlier worker gave them, or may have; a sealed memfd \
	 * <= 4 KiB: their names and reasons, a line each.  After READY, at each change, up to 0, \
	 * which is the last word. */ \
	X(SERVED, 1, NO_POD, REPLIED, "hear what is served again")
/* clang-format on */

#define LINK_OP_NUMBER(op, ...) LINK_##op,
enum link_op { LINK_OP_NONE, LINK_OPS(LINK_OP_NUMBER) LINK_OP_END };

struct link_op_row {
	int nfds; /* of the request: 0 or 1 */
	enum link_whose whose;
	enum link_answer answer;
	const char *refused; /* "the broker refused to ..." */
};
const struct link_op_row *ops_row(unsigned op); /* NULL: there is no such operation */
