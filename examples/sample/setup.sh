#!/bin/sh
# Unpack the sample repository into DIR and commit it.
#   examples/sample/setup.sh DIR
# With NOGIT=1 the files are written and no repository is made.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
dir=${1:?usage: setup.sh DIR}
mkdir -p "$dir"
awk -v dir="$dir" '
	/^-- [A-Za-z0-9._]+ --$/ { out = dir "/" $2; printf "" > out; next }
	out != "" { print > out }
' "$here/sample.txtar"
cp "$here/build.yaml" "$dir/build.yaml"
[ "${NOGIT:-}" = 1 ] && exit 0
cd "$dir"
git init -q
git add -A
git -c user.name=Sample -c user.email=sample@example.org commit -q -m "stats: add mean and median"
