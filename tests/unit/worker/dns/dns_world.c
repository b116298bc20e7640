/* dns_world.c - see dns_world.h. */
#include "dns_world.h"

const struct uuid pod = {{1}};
struct world w;

struct sockaddr_in at(const char *address, uint16_t port)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};

	assert_int_equal(inet_pton(AF_INET, address, &a.sin_addr), 1);
	return a;
}

int socket_at(int type, const char *address, uint16_t port)
{
	const struct sockaddr_in a = at(address, port);
	int fd = socket(AF_INET, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), on = 1;

	assert_true(fd >= 0);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	assert_int_equal(bind(fd, (const struct sockaddr *)&a, sizeof(a)), 0);
	return fd;
}

int proxy_socket(int type)
{
	const struct sockaddr_in6 a = {.sin6_family = AF_INET6, .sin6_port = htons(PORT)};
	int fd = socket(AF_INET6, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), on = 1, off = 0;

	assert_true(fd >= 0);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
	setsockopt(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO, &on, sizeof(on));
	assert_int_equal(bind(fd, (const struct sockaddr *)&a, sizeof(a)), 0);
	if (type == SOCK_STREAM)
		assert_int_equal(listen(fd, 64), 0);
	return fd;
}

int dial(int type, const char *address, uint16_t port)
{
	const struct sockaddr_in a = at(address, port);
	int fd = socket(AF_INET, type | SOCK_CLOEXEC, 0), on = 1;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	assert_int_equal(connect(fd, (const struct sockaddr *)&a, sizeof(a)), 0);
	return fd;
}

void own_network(void)
{
	struct ifreq r = {.ifr_name = "lo", .ifr_flags = IFF_UP};
	int fd;

	assert_int_equal(unshare(CLONE_NEWNET), 0);
	fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	assert_int_equal(ioctl(fd, SIOCSIFFLAGS, &r), 0);
	/* An address of the pod's own. */
	strcpy(r.ifr_name, "lo:1");
	*(struct sockaddr_in *)&r.ifr_addr = at("10.0.0.7", 0);
	assert_int_equal(ioctl(fd, SIOCSIFADDR, &r), 0);
	close(fd);
}

void turn(void)
{
	fake_loop_advance(w.l, 0);
}

void serve(void)
{
	dns_proxy_serve(w.p, proxy_socket(SOCK_DGRAM), proxy_socket(SOCK_STREAM));
}

int setup(void **state)
{
	static bool once;

	(void)state;
	if (!once)
		own_network();
	once = true;
	memset(&w, 0, sizeof(w));
	w.l = fake_loop();
	w.link = fake_link();
	for (int i = 0; i < 2; i++) {
		char address[] = "127.0.1.1";
		address[8] += (char)i;
		w.servers[i].family = AF_INET;
		inet_pton(AF_INET, address, w.servers[i].address.bytes);
		w.resolver[i] = socket_at(SOCK_DGRAM, address, 53);
	}
	w.o = (struct dns_upstream_options){.loop = w.l,
	    .link = w.link,
	    .pod = &pod,
	    .servers = w.servers,
	    .nservers = 1,
	    .timeout_ms = 5000};
	w.p = dns_proxy_new(&w.o, "demo/pod");
	serve();
	w.client = dial(SOCK_DGRAM, "127.0.53.2", PORT);
	return 0;
}

int teardown(void **state)
{
	(void)state;
	close(w.client);
	for (int i = 0; i < 2; i++)
		if (w.resolver[i] >= 0)
			close(w.resolver[i]);
	dns_proxy_free(&w.p);
	fake_loop_end(&w.l);
	link_free(&w.link);
	return 0;
}

void know(const char *host, const char *ip)
{
	const struct dns_zone z = {"ns1", "cluster.local"};
	uint8_t b[256];
	size_t h = strlen(host), i = strlen(ip), n = 0;
	struct iovec iov = {.iov_base = b};
	struct pbwire r;
	struct err e;

	b[n++] = 0x0a;
	b[n++] = (uint8_t)(2 + h + 2 + 2 + i);
	b[n++] = 0x0a;
	b[n++] = (uint8_t)h;
	memcpy(b + n, host, h);
	n += h;
	b[n++] = 0x12;
	b[n++] = (uint8_t)(2 + i);
	b[n++] = 0x0a;
	b[n++] = (uint8_t)i;
	memcpy(b + n, ip, i);
	iov.iov_len = n + i;
	pbwire_init(&r, &iov, 1);
	dns_proxy_set_table(w.p, dns_table_new(r, &z, &e));
	assert_int_equal(dns_table_names(dns_proxy_table(w.p)), 1);
}

size_t question(uint8_t *out, uint16_t id, const char *name, uint16_t type)
{
	size_t n = DNS_HEADER_SIZE;

	memset(out, 0, n);
	dns_set_id(out, id);
	out[2] = 1;
	out[5] = 1;
	while (*name) {
		size_t label = strcspn(name, ".");
		out[n++] = (uint8_t)label;
		memcpy(out + n, name, label);
		n += label;
		name += label + (name[label] == '.');
	}
	memcpy(out + n, "\0\0\0\0\1", 5);
	out[n + 2] = (uint8_t)type;
	return n + 5;
}

void ask(uint16_t id, const char *name, uint16_t type)
{
	uint8_t q[SIZE];
	size_t n = question(q, id, name, type);

	assert_int_equal(send(w.client, q, n, 0), n);
	turn();
}

void give_lane(void)
{
	assert_int_equal(fake_link_dials(w.link, LINK_DIAL_UDP), AF_INET);
	fake_link_dialled(w.link, LINK_DIAL_UDP,
	    socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), NULL);
	turn();
}

void give_lanes(void)
{
	while (fake_link_dials(w.link, LINK_DIAL_UDP))
		give_lane();
}

bool receive(int fd)
{
	ssize_t n = recv(fd, w.in, sizeof(w.in), MSG_DONTWAIT);

	if (n >= 0)
		w.size = (size_t)n;
	return n >= 0;
}

bool asked(int which)
{
	socklen_t size = sizeof(w.from);
	ssize_t n = recvfrom(
	    w.resolver[which], w.in, sizeof(w.in), MSG_DONTWAIT, (struct sockaddr *)&w.from, &size);

	if (n >= 0)
		w.size = (size_t)n;
	return n >= 0;
}

void answer_by(int fd, int code)
{
	w.in[2] |= 0x80;
	w.in[3] = (uint8_t)code;
	assert_int_equal(
	    sendto(fd, w.in, w.size, 0, (struct sockaddr *)&w.from, sizeof(w.from)), w.size);
	turn();
}

void answer(int which, int code)
{
	answer_by(w.resolver[which], code);
}

void answered(uint16_t id, int code)
{
	assert_true(receive(w.client));
	assert_int_equal(dns_id(w.in), id);
	assert_int_equal(w.in[3] & 0xf, code);
}
