// Loads a model file and prints the probabilities that it gives to an empty image. C++17; needs only libtutti.
//
//     use_model FILE
#include <cstdio>
#include <memory>
#include <vector>

#include <tutti/model.h>

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    tu_model_options options = TU_SIZED(tu_model_options);
    options.max_batch = 1;
    tu_model *loaded = nullptr;
    if (tu_model_load_with(argv[1], &loaded, &options) != TU_OK) {
        std::fprintf(stderr, "%s\n", tu_message());
        return 1;
    }
    std::unique_ptr<tu_model, void (*)(tu_model *)> model(loaded, tu_model_free);
    tu_type input, output;
    tu_model_input(model.get(), 0, nullptr, &input);
    tu_model_output(model.get(), 0, nullptr, &output);
    std::vector<char> image(tu_type_bytes(input));
    std::vector<float> probabilities(static_cast<std::size_t>(tu_shape_elements(output.shape)));
    if (tu_model_run(model.get(), 1, image.data(), probabilities.data()) != TU_OK) {
        std::fprintf(stderr, "%s\n", tu_message());
        return 1;
    }
    for (std::size_t i = 0; i < probabilities.size(); i++) {
        const char *label = tu_model_label(model.get(), i);
        std::printf("%s %.9g\n", label ? label : "-", static_cast<double>(probabilities[i]));
    }
}
