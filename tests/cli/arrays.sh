# Creates small data sets for cases: .npy files and folders of images. To be sourced.

write_bytes() { # FILE DTYPE SHAPE AWK_EXPRESSION_OF_BYTE_i BYTES
    local header="{'descr': '|$2', 'fortran_order': False, 'shape': ($3), }"
    { printf '\223NUMPY\1\0'; printf "\\$(printf %o ${#header})\\0%s" "$header"
      LC_ALL=C awk "BEGIN { for (i = 0; i < $5; i++) printf \"%c\", $4 }"; } >"$1"
}
write_array() { write_bytes "$1" u1 "$2" "$3" "$4"; }
write_signed() { write_bytes "$1" i1 "$2" "$3" "$4"; } # 255 is -1

write_images() { # FOLDER: six images each in the classes cat and dog, taken from the generated data set
    mkdir -p "$(dirname "$1")"
    tutti data sample generated -n 12 -o "$1.samples" >/dev/null
    mkdir -p "$1/cat" "$1/dog"
    local i=0 file
    for file in "$1.samples"/*.png; do
        ((i++ % 2)) && mv "$file" "$1/cat/" || mv "$file" "$1/dog/"
    done
    rmdir "$1.samples"
}
