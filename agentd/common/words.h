/* words.h - a list of words as one text, with commas between them. */
#pragma once
#include <stdbool.h>

/* `words` NULL or "": there are none. */
bool words_has(const char *words, const char *word);
