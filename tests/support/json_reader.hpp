// A strict reader of JSON, as small as a test needs it.
#pragma once

#include <cstdlib>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace sympow::test {

struct Json {
  enum class Kind { null, boolean, number, text, list, object };
  Kind kind = Kind::null;
  double number = 0;
  std::string text;
  std::vector<Json> items;
  std::map<std::string, Json> members;

  [[nodiscard]] const Json& at(const std::string& name) const { return members.at(name); }
};

/// Reads one value and what is in it; throws std::runtime_error where the text is no JSON.
class JsonReader {
 public:
  explicit JsonReader(const std::string& text) : text_(text) {}

  [[nodiscard]] Json whole() {
    Json json = value();
    space();
    if (at_ != text_.size()) fail();
    return json;
  }

 private:
  [[noreturn]] void fail() const { throw std::runtime_error("no JSON at byte " + std::to_string(at_)); }
  [[nodiscard]] char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  void space() {
    while (peek() == ' ' || peek() == '\n' || peek() == '\t' || peek() == '\r') ++at_;
  }
  void take(const std::string& token) {
    if (text_.compare(at_, token.size(), token) != 0) fail();
    at_ += token.size();
  }
  [[nodiscard]] bool take_if(char c) {
    space();
    if (peek() != c) return false;
    ++at_;
    return true;
  }

  Json value() {
    space();
    Json json;
    if (peek() == '"') {
      json.kind = Json::Kind::text;
      json.text = string();
    } else if (take_if('{')) {
      json.kind = Json::Kind::object;
      if (!take_if('}')) {
        do {
          space();
          const std::string name = string();
          if (!take_if(':') || !json.members.emplace(name, value()).second) fail();
        } while (take_if(','));
        if (!take_if('}')) fail();
      }
    } else if (take_if('[')) {
      json.kind = Json::Kind::list;
      if (!take_if(']')) {
        do json.items.push_back(value());
        while (take_if(','));
        if (!take_if(']')) fail();
      }
    } else if (peek() == 'n') {
      take("null");
    } else if (peek() == 't' || peek() == 'f') {
      json.kind = Json::Kind::boolean;
      take(peek() == 't' ? "true" : "false");
    } else {
      json.kind = Json::Kind::number;
      const std::size_t end = text_.find_first_not_of("0123456789+-.eE", at_);
      const std::string digits = text_.substr(at_, end == std::string::npos ? end : end - at_);
      char* rest = nullptr;
      json.number = std::strtod(digits.c_str(), &rest);
      if (digits.empty() || *rest != '\0') fail();
      at_ += digits.size();
    }
    return json;
  }

  std::string string() {
    take("\"");
    std::string result;
    while (peek() != '"') {
      if (static_cast<unsigned char>(peek()) < 0x20) fail();  // also the end of the text
      if (peek() != '\\') {
        result += text_[at_++];
        continue;
      }
      ++at_;
      const char c = peek();
      ++at_;
      if (c == '"' || c == '\\' || c == '/') {
        result += c;
      } else if (c == 'u' && at_ + 4 <= text_.size()) {
        const long code = std::strtol(text_.substr(at_, 4).c_str(), nullptr, 16);
        if (code >= 0x80) fail();  // nobody here writes those
        result += static_cast<char>(code);
        at_ += 4;
      } else {
        fail();
      }
    }
    ++at_;
    return result;
  }

  const std::string& text_;
  std::size_t at_ = 0;
};

/// The value that a text is.
[[nodiscard]] inline Json read_json(const std::string& text) { return JsonReader(text).whole(); }

}  // namespace sympow::test
