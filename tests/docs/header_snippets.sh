#!/usr/bin/env bash
# Compiles the examples in comments of the public headers and the C code in README.md, docs/api.md and docs/deploy.md. Also checks
# that every tu_ name in those comments exists.
#   header_snippets.sh SOURCE_DIR COMPILER      (gcc: examples may define nested functions)
#
# An example is a block of comment lines indented by five spaces that contains a name tu_… and a call or a semicolon.
# It is compiled as a file or as the body of a function. Examples may use the variables declared in declarations.h below;
# "…" stands for omitted code.
set -uo pipefail
cd "$1" || exit 1
compiler=$2

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cat > "$work/declarations.h" <<'C'
#include <stdio.h>
#include <string.h>
#include <tutti/tutti.h>
extern tu_graph *g, *graph;
extern uint32_t node;
extern tu_program *program;
extern tu_state *state;
extern tu_value x, y, h, loss, filter, bytes, factors, bias;
extern tu_graph **graphs;
extern tu_state **states;
extern const int32_t *prompt, *tokens;
extern int64_t batch, time, heads, width;
extern size_t prompt_count;
tu_value block(tu_value x);
#ifdef PAGE
extern tu_value labels, *weights, *gradients;
extern size_t count;
extern const void *images;
#else
extern const void *images, *labels;
extern size_t count;
#endif
C

# Writes every example of a file to NAME.LINE.c.
extract() { # FILE NAME
    awk -v out="$work/$2" -v file="$1" '
        function finish() {
            if (text ~ /tu_/ && text ~ /[(;]/) {
                name = out "." start ".c"
                if (text !~ /;/) gsub(/\)[ ]*(\/\/[^\n]*)?\n/, "&;\n", text) # a list of expressions
                gsub(/…/, ";", text)
                if (file ~ /\.md$/) print "#define PAGE" > name
                print "#include \"declarations.h\"\n#ifndef FILE_SCOPE\nint example(void);\nint example(void) {\n#endif" > name
                printf "#line %d \"%s\"\n%s", start, file, text > name
                print "#ifndef FILE_SCOPE\nreturn 0;\n}\n#endif" > name
                close(name)
            }
            text = ""
        }
        {
            inside = file ~ /\.md$/ ? fenced && !/^```/ : /^ \*     /
            if (!inside && text != "") finish()
            if (/^```/) fenced = !fenced && /^```c$/
            if (!inside) next
            if (text == "") start = NR
            if (file !~ /\.md$/) $0 = substr($0, 8)
            sub(/^static /, "")
            text = text $0 "\n"
        }
        END { if (text != "") finish() }' "$1"
}

for header in include/tutti/*.h; do extract "$header" "$(basename "$header")"; done
extract README.md README
extract docs/api.md api
extract docs/deploy.md deploy

compiles() { # EXAMPLE OPTION...
    "$compiler" -std=gnu17 -fsyntax-only -Wall -Wextra -Werror -Wno-unused -Wno-return-type -Wno-empty-body \
        -Wno-uninitialized -Iinclude -I"$work" "$@"
}

count=0 failed=0
for example in "$work"/*.c; do
    count=$((count + 1))
    compiles "$example" -DFILE_SCOPE 2> /dev/null || compiles "$example" || failed=$((failed + 1))
done
((count >= 10)) || { echo "FAILED  only $count examples found"; exit 1; }
((failed)) && { echo "FAILED  $failed of $count examples do not compile"; exit 1; }
echo "$count examples compile"

# Names that occur in the headers' code exist; all others are checked, except tu_device_plugin and tu_user_network,
# which users define.
words() { grep -oE '\b(tu|TU)_[A-Za-z0-9_]*[A-Za-z0-9]\b' | sort -u; }
for header in include/tutti/*.h; do "$compiler" -w -fpreprocessed -dD -E -P "$header"; done | words > "$work/code"
cat include/tutti/*.h | words > "$work/all"
{
    echo '#include <tutti/tutti.h>'
    comm -23 "$work/all" "$work/code" | grep -vxE 'tu_device_plugin|tu_user_network' |
        while read -r name; do printf '#ifndef %s\nenum { exists_%s = sizeof(%s) };\n#endif\n' "$name" "$name" "$name"; done
} > "$work/names.c"
if ! "$compiler" -std=gnu17 -fsyntax-only -w -Iinclude "$work/names.c" 2> "$work/unknown"; then
    sed -n "s/.*error: .\([tT][uU]_[A-Za-z0-9_]*\). undeclared.*/include\/tutti mentions \1, which does not exist/p" "$work/unknown"
    echo "FAILED  names in the public headers that do not exist"
    exit 1
fi
(($(wc -l < "$work/code") >= 300)) || { echo "FAILED  only $(wc -l < "$work/code") names found"; exit 1; }
echo "$(wc -l < "$work/all") names exist"
