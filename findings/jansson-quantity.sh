#!/usr/bin/env bash
# jansson 2.14-2 (Debian 12) and k8s.io/apimachinery v0.34.1: a document that jansson reads and writes again asks for more CPU.
#
# jansson writes a real number with 17 digits: 0.1 becomes 0.10000000000000001, which is the same double. Kubernetes does not read a
# quantity as a double. It keeps decimal digits and rounds up to a billionth: 0.10000000000000001 is 100000001n, which is more than
# 100m. So a pod with the request 0.1 and the limit 100m is valid before it went through jansson, and refused afterwards.
#
# Output seen:
#   jansson: {"cpu": 0.1} -> {"cpu": 0.10000000000000001}
#   kubernetes: 0.1 = 100m, 0.10000000000000001 = 100000001n, compared with 100m: 0, 1
set -euo pipefail
dir=$(mktemp -d)
trap 'chmod -R u+w "$dir"; rm -rf "$dir"' EXIT
cd "$dir"
apt-get -q download libjansson4=2.14-2 >/dev/null 2>&1
dpkg -x libjansson4_*.deb root
cat >rewrite.py <<'P'
import ctypes
import glob

jansson = ctypes.CDLL(glob.glob('root/usr/lib/*/libjansson.so.4')[0])
jansson.json_loads.restype = ctypes.c_void_p
jansson.json_dumps.restype = ctypes.c_char_p
jansson.json_dumps.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
before = b'{"cpu": 0.1}'
print('jansson:', before.decode(), '->', jansson.json_dumps(jansson.json_loads(before, 0, None), 0).decode())
P
cat >go.mod <<'M'
module finding

go 1.24.0

require k8s.io/apimachinery v0.34.1
M
cat >main.go <<'G'
package main

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"
)

func main() {
	before, after, limit := resource.MustParse("0.1"), resource.MustParse("0.10000000000000001"), resource.MustParse("100m")
	fmt.Printf("kubernetes: 0.1 = %s, 0.10000000000000001 = %s, compared with 100m: %d, %d\n",
		before.String(), after.String(), before.Cmp(limit), after.Cmp(limit))
}
G
export GOFLAGS=-mod=mod GOPATH="$dir/go" GOCACHE="$dir/cache"
go mod tidy >/dev/null 2>&1
said=$(python3 rewrite.py && go run .)
printf '%s\n' "$said"
[ "$said" = 'jansson: {"cpu": 0.1} -> {"cpu": 0.10000000000000001}
kubernetes: 0.1 = 100m, 0.10000000000000001 = 100000001n, compared with 100m: 0, 1' ]
