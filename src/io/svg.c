/* Common parts of the SVG drawings. See svg.h.
 *
 * A drawing has plain shapes and one style sheet, which contains all colours twice, for light and dark pages. The
 * palette is Okabe and Ito's, which is distinguishable with any colour vision. Numbers are written without printf's
 * %f, because a decimal comma of the locale would break the file. Labels may contain any bytes: those that XML does
 * not allow become U+FFFD. */
#include "io/svg.h"

#include <string.h>

#include "base/utf8.h"

static const char style[] =
    "<style>"
    "svg{font:12px system-ui,-apple-system,\"Segoe UI\",Roboto,\"DejaVu Sans\",sans-serif}"
    ".paper{fill:#fff}.ink{fill:#1f2328}.soft{fill:#656d76}"
    ".grid{stroke:#d8dee4;stroke-width:1;fill:none}.axis{stroke:#8c959f;stroke-width:1;fill:none}"
    ".title{font-size:16px;font-weight:600}.name{font-size:13px;font-weight:600}.last{font-weight:600}"
    ".line{fill:none;stroke-width:1.6;stroke-linejoin:round;stroke-linecap:round}"
    ".fine{stroke-width:1}"
    ".c0{color:#0072b2}.c1{color:#d55e00}.c2{color:#009e73}.c3{color:#cc79a7}.c4{color:#b58900}.c5{color:#56b4e9}"
    ".line,.swatch{stroke:currentColor}.dot{fill:currentColor}"
    "@media(prefers-color-scheme:dark){"
    ".paper{fill:#0d1117}.ink{fill:#e6edf3}.soft{fill:#9198a1}.grid{stroke:#262c36}.axis{stroke:#656c76}"
    ".c0{color:#58a6ff}.c1{color:#f0883e}.c2{color:#3fb98f}.c3{color:#e29bc4}.c4{color:#e3b341}.c5{color:#9bd5f7}}"
    "</style>\n";

/* ---- Text ---- */

/* True if XML 1.0 allows the well-formed UTF-8 sequence at `s`. */
static bool is_xml_char(const char *s, size_t length) {
    unsigned char c = (unsigned char)*s;
    if (length == 1) return c >= 0x20 || c == '\t' || c == '\n' || c == '\r';
    return memcmp(s, "\xEF\xBF\xBE", 3) != 0 && memcmp(s, "\xEF\xBF\xBF", 3) != 0;
}

void tu__svg_escaped(tu__text *svg, const char *text) {
    static const char *const entities[128] = {
        ['&'] = "&amp;", ['<'] = "&lt;", ['>'] = "&gt;", ['"'] = "&quot;", ['\''] = "&#39;"};
    for (size_t remaining = strlen(text); remaining > 0;) {
        bool valid;
        size_t length = tu__utf8_length(text, remaining, &valid);
        unsigned char c = (unsigned char)*text;
        if (!valid || !is_xml_char(text, length))
            tu__text_append(svg, "\xEF\xBF\xBD", 3);
        else if (c < 128 && entities[c])
            tu__text_append(svg, entities[c], strlen(entities[c]));
        else
            tu__text_append(svg, text, length);
        text += length;
        remaining -= length;
    }
}

size_t tu__svg_letters(const char *text) {
    size_t count = 0;
    for (; *text; text++) count += ((unsigned char)*text & 0xC0) != 0x80;
    return count;
}

void tu__svg_text(tu__text *svg, int x, int y, const char *class, const char *anchor, const char *text) {
    if (!text || !*text) return;
    tu__text_printf(svg, "<text x=\"%d\" y=\"%d\" class=\"%s\" text-anchor=\"%s\">", x, y, class, anchor);
    tu__svg_escaped(svg, text);
    tu__text_printf(svg, "</text>\n");
}

/* ---- Drawing ---- */

void tu__svg_begin(tu__text *svg, int width, int height, const char *title) {
    tu__text_printf(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" "
        "role=\"img\">\n<title>",
        width, height, width, height);
    tu__svg_escaped(svg, title ? title : "");
    tu__text_printf(svg, "</title>\n%s<rect class=\"paper\" width=\"%d\" height=\"%d\" rx=\"8\"/>\n", style,
                    width, height);
}

tu_status tu__svg_end(tu__text *svg) {
    tu__text_printf(svg, "</svg>\n");
    return svg->failed ? TU_NO_MEMORY : TU_OK;
}
