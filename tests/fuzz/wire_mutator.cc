// Mutates protobuf messages field by field: libFuzzer alone mostly breaks the lengths of nested
// messages. Knows the wire format, not our messages. Linked to the envelope target under libFuzzer.
#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t size_max);

namespace {

constexpr unsigned kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5;
constexpr uint64_t kNumbers[] = {0,           1,          2,          127,
                                 128,         4096,       4097,       1u << 20,
                                 0x7FFFFFFF,  0x80000000, 0xFFFFFFFF, 0x7FFFFFFFFFFFFFFF,
                                 ~uint64_t{0}};

struct Field {
  uint64_t tag = 0;     // number << 3 | wire type
  uint64_t number = 0;  // of kVarint
  std::string bytes;    // of the others
  unsigned type() const { return tag & 7; }
};

bool read_varint(std::string_view& in, uint64_t& value) {
  value = 0;
  for (unsigned shift = 0; shift < 64 && !in.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(in.front());
    in.remove_prefix(1);
    value |= uint64_t{byte & 0x7Fu} << shift;
    if (byte < 0x80) return true;
  }
  return false;
}

void write_varint(uint64_t value, std::string& out) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>((value & 0x7F) | 0x80);
  out += static_cast<char>(value);
}

bool parse(std::string_view in, std::vector<Field>& fields) {
  while (!in.empty()) {
    Field field;
    if (!read_varint(in, field.tag) || field.tag >> 3 == 0) return false;
    uint64_t length = field.type() == kFixed64 ? 8 : 4;
    switch (field.type()) {
      case kVarint:
        if (!read_varint(in, field.number)) return false;
        length = 0;
        break;
      case kBytes:
        if (!read_varint(in, length)) return false;
        break;
      case kFixed64:
      case kFixed32: break;
      default: return false;
    }
    if (length > in.size()) return false;
    field.bytes = in.substr(0, length);
    in.remove_prefix(length);
    fields.push_back(std::move(field));
  }
  return true;
}

std::string serialise(const std::vector<Field>& fields) {
  std::string out;
  for (const Field& field : fields) {
    write_varint(field.tag, out);
    if (field.type() == kVarint) write_varint(field.number, out);
    if (field.type() == kBytes) write_varint(field.bytes.size(), out);
    out += field.bytes;
  }
  return out;
}

void mutate_bytes(std::string& bytes, std::mt19937& random) {
  const size_t size = bytes.size(), room = size + 1 + random() % 16;
  bytes.resize(room);
  bytes.resize(LLVMFuzzerMutate(reinterpret_cast<uint8_t*>(bytes.data()), size, room));
}

void mutate(std::vector<Field>& fields, std::mt19937& random);

void mutate_value(Field& field, std::mt19937& random) {
  if (field.type() == kVarint) {
    field.number = random() % 2 != 0 ? kNumbers[random() % std::size(kNumbers)]
                                     : field.number ^ uint64_t { 1 } << random() % 64;
    return;
  }
  if (field.type() != kBytes) {
    field.bytes[random() % field.bytes.size()] = static_cast<char>(random());
    return;
  }
  std::vector<Field> inner;
  if (!field.bytes.empty() && random() % 4 != 0 && parse(field.bytes, inner)) {
    mutate(inner, random);
    field.bytes = serialise(inner);
  } else {
    mutate_bytes(field.bytes, random);
  }
}

void mutate(std::vector<Field>& fields, std::mt19937& random) {
  if (fields.empty() || random() % 12 == 0) {
    Field added{.tag = (1 + random() % 24) << 3, .number = random() % 256, .bytes = {}};
    if (random() % 2 != 0) added.tag |= kBytes;
    fields.push_back(added);
    return;
  }
  const size_t at = random() % fields.size();
  switch (random() % 8) {
    case 0: fields.erase(fields.begin() + static_cast<std::ptrdiff_t>(at)); break;
    case 1: fields.push_back(Field(fields[at])); break;
    case 2: std::swap(fields[at], fields[random() % fields.size()]); break;
    case 3: fields[at].tag = (1 + random() % 24) << 3 | fields[at].type(); break;
    default: mutate_value(fields[at], random); break;
  }
}

}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t size_max,
                                          unsigned seed) {
  std::mt19937 random(seed);
  std::vector<Field> fields;
  // The first byte says how many raw frames are in front; such inputs are mutated as bytes.
  if (size == 0 || data[0] % 4 != 0 || random() % 8 == 0 ||
      !parse({reinterpret_cast<const char*>(data) + 1, size - 1}, fields))
    return LLVMFuzzerMutate(data, size, size_max);
  mutate(fields, random);
  const std::string out = serialise(fields);
  if (out.size() + 1 > size_max) return LLVMFuzzerMutate(data, size, size_max);
  out.copy(reinterpret_cast<char*>(data) + 1, out.size());
  return out.size() + 1;
}
