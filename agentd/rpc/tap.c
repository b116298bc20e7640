/* tap.c - grpc encrypts or decrypts -> ours is called -> OpenSSL does it -> the bytes are followed
 * (arrivals.h) -> news -> the loop is woken.  What is known of a connection is freed with its SSL.
 *
 * What grpc encrypts it gathers in a buffer of the connection, and leaves there until it sends
 * more: a token's copy would stay.  grpc does not look at those bytes again, so they are wiped.
 */
#include "tap.h"
#include "common/mem.h"
#include "wait.h"

#include <openssl/ssl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

int rpc_tap_read(SSL *ssl, void *to, int n);
int rpc_tap_write(SSL *ssl, const void *from, int n);
/* Where libssl is a library of its own, ours come first.  Where it is inside of the executable, it
 * has them itself, and the linker puts ours in their place. */
int SSL_read(SSL *ssl, void *to, int n) __attribute__((weak, alias("rpc_tap_read")));
int SSL_write(SSL *ssl, const void *from, int n) __attribute__((weak, alias("rpc_tap_write")));

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static int slot = -1; /* of each SSL: its connection */
static int tell_fd = -1;
static struct rpc_tap_news *news, **news_end = &news;

static void on_arrival(void *ctx, uint64_t mark, enum rpc_arrival what, uint32_t size)
{
	struct rpc_tap_news *n;

	(void)ctx;
	if (tell_fd < 0)
		return;
	n = mem_zalloc(sizeof(*n));
	*n = (struct rpc_tap_news){.mark = mark, .what = what, .size = size};
	if (!news)
		rpc_wait_tell(tell_fd);
	*news_end = n;
	news_end = &n->next;
}

static void on_ssl_freed(
    void *ssl, void *connection, CRYPTO_EX_DATA *data, int index, long argl, void *ctx)
{
	struct rpc_arrivals *a = connection;

	(void)ssl, (void)data, (void)index, (void)argl, (void)ctx;
	rpc_arrivals_free(&a);
}

static void make_slot(void)
{
	slot = SSL_get_ex_new_index(0, NULL, NULL, NULL, on_ssl_freed);
}

/* Under the lock. */
static struct rpc_arrivals *connection_of(SSL *ssl)
{
	struct rpc_arrivals *a;

	pthread_once(&once, make_slot);
	a = SSL_get_ex_data(ssl, slot);
	if (!a && !SSL_is_server(ssl)) {
		a = rpc_arrivals_new(on_arrival, NULL);
		if (!SSL_set_ex_data(ssl, slot, a))
			abort();
	}
	return a;
}

int rpc_tap_read(SSL *ssl, void *to, int n)
{
	size_t came = 0;

	if (n < 0 || !SSL_read_ex(ssl, to, (size_t)n, &came))
		return -1; /* SSL_get_error() knows why */
	pthread_mutex_lock(&lock);
	struct rpc_arrivals *a = connection_of(ssl);

	if (a)
		rpc_arrivals_in(a, to, came);
	pthread_mutex_unlock(&lock);
	return (int)came;
}

int rpc_tap_write(SSL *ssl, const void *from, int n)
{
	size_t went = 0;

	if (n < 0 || !SSL_write_ex(ssl, from, (size_t)n, &went))
		return -1;
	pthread_mutex_lock(&lock);
	struct rpc_arrivals *a = connection_of(ssl);

	if (a)
		rpc_arrivals_out(a, from, went);
	pthread_mutex_unlock(&lock);
	if (a)
		explicit_bzero((void *)from, went);
	return (int)went;
}

void rpc_tap_tell(int eventfd)
{
	pthread_mutex_lock(&lock);
	tell_fd = eventfd;
	pthread_mutex_unlock(&lock);
}

struct rpc_tap_news *rpc_tap_take(void)
{
	pthread_mutex_lock(&lock);
	struct rpc_tap_news *all = take(news);

	news_end = &news;
	pthread_mutex_unlock(&lock);
	return all;
}
