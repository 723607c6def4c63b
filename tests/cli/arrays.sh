# Small sets of files for cases: arrays as NumPy writes them, and folders of pictures. To be sourced.

write_bytes() { # file, type, shape, the value of byte i as awk computes it, how many bytes
    local header="{'descr': '|$2', 'fortran_order': False, 'shape': ($3), }"
    { printf '\223NUMPY\1\0'; printf "\\$(printf %o ${#header})\\0%s" "$header"
      LC_ALL=C awk "BEGIN { for (i = 0; i < $5; i++) printf \"%c\", $4 }"; } >"$1"
}
write_array() { write_bytes "$1" u1 "$2" "$3" "$4"; }
write_signed() { write_bytes "$1" i1 "$2" "$3" "$4"; } # 255 is -1

write_pictures() { # folder: six pictures each of cats and dogs, taken from the generated set
    mkdir -p "$(dirname "$1")"
    tutti data sample generated -n 12 -o "$1.samples" >/dev/null
    mkdir -p "$1/cat" "$1/dog"
    local i=0 file
    for file in "$1.samples"/*.png; do
        ((i++ % 2)) && mv "$file" "$1/cat/" || mv "$file" "$1/dog/"
    done
    rmdir "$1.samples"
}
