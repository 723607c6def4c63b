#!/usr/bin/env bash
# Compares the binary interface (ABI) with the lists in this folder, on which programs compiled earlier rely:
#
#   libtutti.symbols, libtutti_train.symbols   exported functions with their symbol versions
#   functions.txt                              prototypes
#   layouts.txt                                structures with the offset, size and type of every field; enum constants;
#                                              numbers that are macros
#
# Internal functions (symbol version TUTTI_PRIVATE_x.y.z) are not part of the interface and not listed.
#   abi.sh INCLUDE LIBTUTTI LIBTUTTI_TRAIN COMPILER            fails if anything differs, and reports what it breaks
#   abi.sh INCLUDE LIBTUTTI LIBTUTTI_TRAIN COMPILER --update   rewrites the lists (update.sh calls this)
set -uo pipefail
export LC_ALL=C

here=${TUTTI_ABI_LISTS:-$(cd "${BASH_SOURCE[0]%/*}" && pwd)} # test_abi.sh sets this to a copy
include=$1 core=$2 train=$3 compiler=$4 update=${5-}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED  $*"; exit 1; }

echo '#include <tutti/tutti.h>' >"$work/all.c"
"$compiler" -std=c17 -I"$include" -g -gdwarf-4 -fno-eliminate-unused-debug-types -c "$work/all.c" -o "$work/all.o" ||
    fail "the public headers do not compile"
file_class=$(readelf -h "$work/all.o" | awk '/Class:/ {print $2}')
[[ $file_class == ELF64 ]] || { echo "skipped: the lists are for 64-bit machines"; exit 77; }

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
# Reads the debug information: every entry with its parent, name, type, size and offset.
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
        depth = part[2]; entry = part[3]
        tag[entry] = $NF; gsub(/[()]/, "", tag[entry])
        parent[entry] = open[depth - 1]; open[depth] = entry
        order[++count] = entry
        next
    }
    /DW_AT_name / { name[entry] = value($0) }
    /DW_AT_byte_size / { size[entry] = value($0) + 0 }
    /DW_AT_type / { type[entry] = value($0); gsub(/[<>]|0x/, "", type[entry]) }
    /DW_AT_data_member_location/ { offset[entry] = value($0) + 0 }
    /DW_AT_const_value/ { constant[entry] = value($0) }
    /DW_AT_upper_bound/ { bound[entry] = value($0) + 1 }
    /DW_AT_count/ { bound[entry] = value($0) + 0 }
    function text_of(t,    base) {
        if (t == "") return "void"
        base = type[t]
        if (tag[t] == "DW_TAG_pointer_type")
            return tag[base] == "DW_TAG_subroutine_type" ? "function pointer" : text_of(base) " *"
        if (tag[t] == "DW_TAG_const_type") return "const " text_of(base)
        if (tag[t] == "DW_TAG_volatile_type") return text_of(base)
        if (tag[t] == "DW_TAG_array_type") return text_of(base) dimensions[t]
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
            entry = order[i]
            if (tag[entry] != "DW_TAG_subrange_type") continue
            t = parent[entry]
            if (!(t in elements)) elements[t] = 1
            elements[t] *= bound[entry]
            dimensions[t] = dimensions[t] "[" bound[entry] "]"
        }
        for (i = 1; i <= count; i++) {
            entry = order[i]; p = parent[entry]
            if (tag[entry] == "DW_TAG_structure_type" && name[entry] ~ /^tu_/ && entry in size) print "struct " name[entry] " : size " size[entry]
            if (tag[entry] == "DW_TAG_member" && name[p] ~ /^tu_/)
                print "field " name[p] "." name[entry] " : offset " offset[entry] " size " size_of(type[entry]) " " text_of(type[entry])
            if (tag[entry] == "DW_TAG_enumerator" && name[entry] ~ /^TU_/) print "constant " name[entry] " : " constant[entry]
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
            else if (key ~ /^struct /) breaks(change " (a structure without struct_size is frozen; others may only grow)")
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
        if (broken + added) print "        If this is intended: run tests/abi/update.sh and commit the lists. After a release, a change that breaks old\n        programs also needs another SOVERSION and TU_ABI (docs/decisions.md 40)."
        exit broken + added > 0
    }' "$work/expected" "$work/found" || exit 1
echo "$(grep -c ^symbol "$work/libtutti.symbols") symbols of libtutti, $(grep -c ^symbol "$work/libtutti_train.symbols") of libtutti_train;" \
    "$(grep -c '^struct ' "$work/layouts.txt") structures with $(grep -c '^field ' "$work/layouts.txt") fields," \
    "$(grep -c '^constant ' "$work/layouts.txt") constants are as listed"
