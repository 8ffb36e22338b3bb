// Pictures in the portable formats: reads PGM and PPM, ASCII and raw, and writes a raw PPM.
#pragma once

#include <Eigen/Core>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <string>

namespace place_patches {

/// What ends the program with exit status 2. The message is one line that names the option or file, and the values.
struct BadInput : std::runtime_error {
  using std::runtime_error::runtime_error;
};

template <class... Parts>
[[noreturn]] void fail(const Parts&... parts) {
  std::ostringstream message;
  (message << ... << parts);
  throw BadInput(message.str());
}

/// Brightness from 0 to 1, rows × columns of pixels.
using Picture = Eigen::MatrixXd;

namespace detail {

/// The numbers of a PNM file, one after the other.
class Numbers {
 public:
  Numbers(const std::string& path, const std::string& bytes) : path_(path), bytes_(bytes) {}

  [[nodiscard]] std::size_t left() const { return bytes_.size() - at_; }

  /// The next number in digits, after spaces and comments.
  int digits(const char* what, int least, int most) {
    while (left() > 0 && (is_space(bytes_[at_]) || bytes_[at_] == '#'))
      at_ = bytes_[at_] == '#' ? std::min(bytes_.find('\n', at_), bytes_.size()) : at_ + 1;
    if (left() == 0) fail(path_, ": ends where ", what, " should be");
    const char* const begin = bytes_.data() + at_;
    int number = -1;  // if it is beyond an int
    const char* const end = std::from_chars(begin, bytes_.data() + bytes_.size(), number).ptr;
    if (end == begin || *begin == '-') fail(path_, ": byte ", at_, " is not a digit, ", what, " should be there");
    if (number < least || number > most)
      fail(path_, ": ", what, " is ", std::string(begin, end), ", must be ", least, " to ", most);
    at_ += static_cast<std::size_t>(end - begin);
    return number;
  }

  /// The next number in one byte, or in two, the more significant first.
  int raw(int bytes, int most) {
    int number = 0;
    for (; bytes > 0; --bytes) number = 256 * number + static_cast<unsigned char>(bytes_[at_++]);
    if (number > most) fail(path_, ": a sample is ", number, ", must be 0 to ", most);
    return number;
  }

  /// The one space that ends the header of a raw picture.
  void space() {
    if (left() == 0 || !is_space(bytes_[at_]))
      fail(path_, ": byte ", at_, " must be a space, the end of the header of a raw picture");
    ++at_;
  }

  void skip(std::size_t bytes) { at_ += bytes; }

 private:
  static bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

  const std::string &path_, &bytes_;
  std::size_t at_ = 0;
};

}  // namespace detail

/// The brightness of a P2, P3, P5 or P6 file. Throws `BadInput`.
inline Picture read_picture(const std::string& path) {
  if (std::filesystem::is_directory(path)) fail(path, ": is a directory, must be a picture");
  std::ifstream file(path, std::ios::binary);
  if (!file) fail(path, ": cannot be opened");
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  const std::string kind = bytes.substr(0, 2);
  if (kind != "P2" && kind != "P3" && kind != "P5" && kind != "P6")
    fail(path, ": is not a PGM or PPM picture, which begins with P2, P3, P5 or P6");
  detail::Numbers numbers(path, bytes);
  numbers.skip(2);
  const int width = numbers.digits("the width", 1, 1 << 14), height = numbers.digits("the height", 1, 1 << 14),
            white = numbers.digits("the value of white", 1, 65535);
  const bool is_raw = kind >= "P5";
  const int channels = kind == "P3" || kind == "P6" ? 3 : 1, bytes_each = white < 256 ? 1 : 2;
  const std::size_t samples = static_cast<std::size_t>(channels) * static_cast<std::size_t>(width) *
                              static_cast<std::size_t>(height),
                    needed = samples * static_cast<std::size_t>(is_raw ? bytes_each : 2);  // a space and a digit
  if (is_raw) numbers.space();
  if (numbers.left() < needed)
    fail(path, ": ends early, after ", numbers.left(), is_raw ? " of " : " of at least ", needed, " bytes of samples");

  constexpr std::array<double, 3> luma = {.299, .587, .114};
  Picture picture(height, width);
  for (int y = 0; y < height; ++y)
    for (int x = 0; x < width; ++x) {
      std::array<double, 3> sample{};
      for (int c = 0; c < channels; ++c)
        sample[static_cast<std::size_t>(c)] =
            static_cast<double>(is_raw ? numbers.raw(bytes_each, white) : numbers.digits("a sample", 0, white)) / white;
      picture(y, x) = channels == 1 ? sample[0] : luma[0] * sample[0] + luma[1] * sample[1] + luma[2] * sample[2];
    }
  return picture;
}

/// Red, green and blue, rows × columns of pixels each.
using Colours = std::array<Picture, 3>;

/// Writes a P6 file. Throws `BadInput` if that is not possible.
inline void write_picture(const std::string& path, const Colours& colours) {
  std::ofstream file(path, std::ios::binary);
  file << "P6\n" << colours[0].cols() << ' ' << colours[0].rows() << "\n255\n";
  for (Eigen::Index y = 0; y < colours[0].rows(); ++y)
    for (Eigen::Index x = 0; x < colours[0].cols(); ++x)
      for (const Picture& colour : colours)
        file.put(static_cast<char>(static_cast<unsigned char>(255 * std::clamp(colour(y, x), 0., 1.) + .5)));
  if (!file.flush()) fail("--out ", path, ": cannot be written");
}

}  // namespace place_patches
