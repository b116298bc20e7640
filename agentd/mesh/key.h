/* key.h - the kind of key that a pod asks for its certificate. */
#pragma once
#include <stdbool.h>

enum x509_key_type { X509_EC_P256, X509_EC_P384, X509_RSA_2048, X509_RSA_3072, X509_RSA_4096 };

struct x509_key_params {
	enum x509_key_type type;
	bool pkcs8; /* "PRIVATE KEY" instead of "EC/RSA PRIVATE KEY" */
};
