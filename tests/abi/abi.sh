#!/usr/bin/env bash
# Compares the binary interface with the lists in this folder, which say what programs that were compiled earlier rely on:
#
#   libtutti.symbols, libtutti_train.symbols   exported functions with their symbol versions
#   functions.txt                              prototypes
#   layouts.txt                                structures with the offset, size and type of every field; enum constants;
#                                              numbers that are macros
#
# Internal functions (symbol version TUTTI_PRIVATE_x.y.z) are no promise and not in the lists.
#   abi.sh INCLUDE LIBTUTTI LIBTUTTI_TRAIN COMPILER            fails if anything differs, and says what it breaks
#   abi.sh INCLUDE LIBTUTTI LIBTUTTI_TRAIN COMPILER --update   writes the lists anew (update.sh calls this)
set -uo pipefail
export LC_ALL=C

here=${TUTTI_ABI_LISTS:-$(cd "${BASH_SOURCE[0]%/*}" && pwd)} # test_abi.sh compares with lists of its own
include=$1 core=$2 train=$3 compiler=$4 update=${5-}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED  $*"; exit 1; }

echo '#include <tutti/tutti.h>' >"$work/all.c"
"$compiler" -std=c17 -I"$include" -g -gdwarf-4 -fno-eliminate-unused-debug-types -c "$work/all.c" -o "$work/all.o" ||
    fail "the public headers do not compile"
file_class=$(readelf -h "$work/all.o" | awk '/Class:/ {print $2}')
[[ $file_class == ELF64 ]] || { echo "skipped: the lists are those of 64-bit machines"; exit 77; }

# ---- Symbols ----
list_symbols() { # LIBRARY
    nm -D --with-symbol-versions --defined-only "$1" | awk '$(NF - 1) != "A" && $NF !~ /@@?TUTTI_PRIVATE_/ {
        name = $NF; sub(/@.*/, "", name); version = $NF; if (!sub(/^[^@]*@/, "", version)) version = "none"; sub(/^@/, "", version)
        print "symbol " name " : " version " " $(NF - 1)
    }' | sort
}
list_symbols "$core" >"$work/libtutti.symbols"
list_symbols "$train" >"$work/libtutti_train.symbols"

# ---- Prototypes ----
"$compiler" -std=c17 -I"$include" -E -P "$work/all.c" | tr '\n' ' ' | tr ';' '\n' |
    sed -n 's/.*__attribute__((visibility("default"))) *//p' |
    sed 's/__attribute__((format([^)]*)))//; s/  */ /g; s/ *$//; s/^/function /' |
    awk '{name = $0; sub(/\(.*/, "", name); sub(/.*[ *]/, "", name); sub(/^function /, ""); print "function " name " : " $0}' |
    sort -u >"$work/functions.txt"

# ---- Layouts ----
# Reads the debug information: every entry with its parent, name, type, size and place.
readelf --debug-dump=info "$work/all.o" | awk '
    function value(line) {
        sub(/^[^:]*: /, "", line)
        sub(/^\(indirect string, offset: [^)]*\): /, "", line)
        sub(/^\(indexed string: [^)]*\): /, "", line)
        sub(/[ \t]+$/, "", line)
        return line
    }
    /^ *<[0-9a-f]+><[0-9a-f]+>: Abbrev Number: [1-9]/ {
        split($1, part, /[<>]+/)
        depth = part[2]; at = part[3]
        tag[at] = $NF; gsub(/[()]/, "", tag[at])
        parent[at] = open[depth - 1]; open[depth] = at
        order[++count] = at
        next
    }
    /DW_AT_name / { name[at] = value($0) }
    /DW_AT_byte_size / { size[at] = value($0) + 0 }
    /DW_AT_type / { type[at] = value($0); gsub(/[<>]|0x/, "", type[at]) }
    /DW_AT_data_member_location/ { offset[at] = value($0) + 0 }
    /DW_AT_const_value/ { constant[at] = value($0) }
    /DW_AT_upper_bound/ { bound[at] = value($0) + 1 }
    /DW_AT_count/ { bound[at] = value($0) + 0 }
    function text_of(t,    of) {
        if (t == "") return "void"
        of = type[t]
        if (tag[t] == "DW_TAG_pointer_type")
            return tag[of] == "DW_TAG_subroutine_type" ? "function pointer" : text_of(of) " *"
        if (tag[t] == "DW_TAG_const_type") return "const " text_of(of)
        if (tag[t] == "DW_TAG_volatile_type") return text_of(of)
        if (tag[t] == "DW_TAG_array_type") return text_of(of) dimensions[t]
        return name[t]
    }
    function size_of(t) {
        if (tag[t] == "DW_TAG_pointer_type") return 8
        if (tag[t] == "DW_TAG_array_type") return size_of(type[t]) * elements[t]
        if (t in size) return size[t]
        return type[t] == "" ? 0 : size_of(type[t])
    }
    END {
        for (i = 1; i <= count; i++) {
            at = order[i]
            if (tag[at] != "DW_TAG_subrange_type") continue
            t = parent[at]
            if (!(t in elements)) elements[t] = 1
            elements[t] *= bound[at]
            dimensions[t] = dimensions[t] "[" bound[at] "]"
        }
        for (i = 1; i <= count; i++) {
            at = order[i]; p = parent[at]
            if (tag[at] == "DW_TAG_structure_type" && name[at] ~ /^tu_/ && at in size) print "struct " name[at] " : size " size[at]
            if (tag[at] == "DW_TAG_member" && name[p] ~ /^tu_/)
                print "field " name[p] "." name[at] " : offset " offset[at] " size " size_of(type[at]) " " text_of(type[at])
            if (tag[at] == "DW_TAG_enumerator" && name[at] ~ /^TU_/) print "constant " name[at] " : " constant[at]
        }
    }' >"$work/layouts.txt"
"$compiler" -std=c17 -I"$include" -E -dM "$work/all.c" |
    awk '$1 == "#define" && $2 ~ /^TU_[A-Z0-9_]*[A-Z0-9]$/ && $3 ~ /^[(]?-?[0-9]/ {print "constant " $2 " : " $3}' | sort >>"$work/layouts.txt"

lists=(libtutti.symbols libtutti_train.symbols functions.txt layouts.txt)
for list in "${lists[@]}"; do
    (($(wc -l <"$work/$list") > 20)) || fail "only $(wc -l <"$work/$list") lines found for $list"
done
if [[ $update == --update ]]; then
    for list in "${lists[@]}"; do cp "$work/$list" "$here/$list"; done
    wc -l "${lists[@]/#/$here/}"
    exit 0
fi

# ---- Comparison ----
cat "${lists[@]/#/$here/}" >"$work/expected" || exit 1
cat "${lists[@]/#/$work/}" >"$work/found"
awk -F ' : ' '
    function breaks(text) { print "  BREAKS OLD PROGRAMS  " text; broken++ }
    function adds(text) { print "  addition             " text; added++ }
    function structure(key) { sub(/^field /, "", key); sub(/\..*/, "", key); return key }
    NR == FNR { old[$1] = $2; order[++count] = $1; next }
    { now[$1] = $2; later[++found] = $1 }
    END {
        for (i = 1; i <= count; i++) {
            key = order[i]
            if (!(key in now)) { breaks(key " is gone (it was: " old[key] ")"); continue }
            if (now[key] == old[key]) continue
            change = key ": " old[key] " -> " now[key]
            name = key; sub(/^[a-z]+ /, "", name)
            if (key ~ /^struct / && ("field " name ".struct_size") in old && substr(now[key], 6) + 0 > substr(old[key], 6) + 0)
                adds(change " (fields were added)")
            else if (key ~ /^struct /) breaks(change " (a structure without struct_size is frozen; others grow only)")
            else if (key ~ /^field /) breaks(change " (fields are added at the end; none moves or changes its type)")
            else if (key ~ /^constant TU_[A-Z]*_COUNT$/) adds(change)
            else if (key ~ /^constant TU_(DEVICE_)?ABI$/) adds(change " (old programs and plug-ins are rejected with a message)")
            else if (key ~ /^function /) breaks(change " (unless only names of parameters differ)")
            else breaks(change)
        }
        for (i = 1; i <= found; i++) {
            key = later[i]
            if (key in old) continue
            s = structure(key)
            if (key ~ /^field / && ("struct " s) in old) {
                split(now[key], word, " ")
                if (!(("field " s ".struct_size") in old)) breaks(key ": " now[key] " (a structure without struct_size is frozen)")
                else if (word[2] + 0 < substr(old["struct " s], 6) + 0) breaks(key ": " now[key] " (inserted: add fields at the end)")
                else adds(key ": " now[key])
            } else adds(key ": " now[key])
        }
        if (broken) print "FAILED  " broken " changes of the binary interface break programs that were compiled earlier"
        else if (added) print "FAILED  " added " additions to the binary interface are not in the lists of tests/abi"
        if (broken + added) print "        If that is meant: run tests/abi/update.sh and commit the lists. After a release, a change that breaks old\n        programs also needs another SOVERSION and TU_ABI (docs/decisions.md 40)."
        exit broken + added > 0
    }' "$work/expected" "$work/found" || exit 1
echo "$(grep -c ^symbol "$work/libtutti.symbols") symbols of libtutti, $(grep -c ^symbol "$work/libtutti_train.symbols") of libtutti_train;" \
    "$(grep -c '^struct ' "$work/layouts.txt") structures with $(grep -c '^field ' "$work/layouts.txt") fields," \
    "$(grep -c '^constant ' "$work/layouts.txt") constants are as listed"
