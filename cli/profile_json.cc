#include "cli/profile_json.h"

#include <boost/json.hpp>
#include <cmath>
#include <limits>
#include <type_traits>
#include <vector>

#include "base/cat.h"

namespace cli {

namespace json = boost::json;

namespace {

constexpr const char* kFormat = "numoe-machine-profile";

/// Names of the values of an enumeration, in their order.
template <class Enum>
struct Names;
template <>
struct Names<shm::PageKind> {
  static constexpr const char* kAll[] = {"small", "huge"};
};
template <>
struct Names<shm::Traffic> {
  static constexpr const char* kAll[] = {"read", "write", "copy"};
};
template <>
struct Names<shm::Nearness> {
  static constexpr const char* kAll[] = {"same_core", "same_cache", "same_node", "same_package",
                                         "other_package"};
};

// The table: every struct once, for writing and for reading.

template <class Io>
void fields(Io& io, shm::Spread& it) {
  io("median", it.median), io("min", it.min), io("max", it.max), io("samples", it.samples);
}

template <class Io>
void fields(Io& io, shm::NodeFacts& it) {
  io("os_index", it.os_index), io("memory_bytes", it.memory_bytes);
  io("free_bytes", it.free_bytes), io("cores", it.cores), io("package", it.package);
  io("cpus", it.cpus), io("distances", it.distances);
}

template <class Io>
void fields(Io& io, shm::CacheFacts& it) {
  io("bytes", it.bytes), io("cpus", it.cpus);
}

template <class Io>
void fields(Io& io, shm::MachineFacts& it) {
  io("cpu_model", it.cpu_model), io("microcode", it.microcode), io("hypervisor", it.hypervisor);
  io("board", it.board), io("bios", it.bios), io("kernel", it.kernel);
  io("governor", it.governor), io("transparent_huge_pages", it.transparent_huge_pages);
  io("shmem_huge_pages", it.shmem_huge_pages), io("numa_balancing", it.numa_balancing);
  io("arena_file_system", it.arena_file_system), io("packages", it.packages);
  io("cpu_quota", it.cpu_quota), io("available_bytes", it.available_bytes);
  io("memory_limit_bytes", it.memory_limit_bytes), io("nodes", it.nodes);
  io("last_caches", it.last_caches);
}

template <class Io>
void fields(Io& io, shm::MemoryFigure& it) {
  io("node", it.node), io("asked", it.asked), io("bytes", it.bytes);
  io("huge_bytes", it.huge_bytes), io("page_bytes", it.page_bytes), io("bound", it.bound);
  io("verified_by", it.verified_by), io("share_on_node", it.share_on_node);
}

template <class Io>
void fields(Io& io, shm::BandwidthFigure& it) {
  io("traffic", it.traffic), io("pages", it.pages), io("reader_node", it.reader_node);
  io("memory_node", it.memory_node), io("threads", it.threads), io("gb_per_s", it.gb_per_s);
}

template <class Io>
void fields(Io& io, shm::LatencyFigure& it) {
  io("reader_node", it.reader_node), io("memory_node", it.memory_node), io("pages", it.pages);
  io("ns", it.ns);
}

template <class Io>
void fields(Io& io, shm::LineFigure& it) {
  io("cpu_a", it.cpu_a), io("cpu_b", it.cpu_b), io("node_a", it.node_a), io("node_b", it.node_b);
  io("nearness", it.nearness), io("ns", it.ns);
}

template <class Io>
void fields(Io& io, shm::ExchangeFigure& it) {
  io("ranks", it.ranks), io("threads", it.threads), io("simulated", it.simulated);
  io("gather_bytes", it.gather_bytes), io("ns", it.ns);
}

template <class Io>
void fields(Io& io, shm::MachineProfile& it) {
  io("fingerprint", it.fingerprint), io("measured_at", it.measured_at), io("quick", it.quick);
  io("seconds", it.seconds), io("facts", it.facts), io("memory", it.memory);
  io("bandwidth", it.bandwidth), io("latency", it.latency), io("lines", it.lines);
  io("exchanges", it.exchanges), io("notes", it.notes);
}

template <class T>
constexpr bool is_vector = false;
template <class T>
constexpr bool is_vector<std::vector<T>> = true;

class Writer {
 public:
  explicit Writer(json::object& out) : out_(out) {}
  template <class T>
  void operator()(const char* name, T& field) {
    out_[name] = to_value(field);
  }

 private:
  template <class T>
  static json::value to_value(T& field) {
    if constexpr (is_vector<T>) {
      json::array array;
      for (auto& element : field) array.push_back(to_value(element));
      return array;
    } else if constexpr (std::is_enum_v<T>) {
      return json::value(Names<T>::kAll[static_cast<size_t>(field)]);
    } else if constexpr (std::is_arithmetic_v<T>) {
      return json::value(field);
    } else if constexpr (std::is_same_v<T, std::string>) {
      return json::value(field.c_str());
    } else {
      json::object object;
      Writer writer(object);
      fields(writer, field);
      return object;
    }
  }

  json::object& out_;
};

/// Reads what Writer wrote. The first thing that is wrong stays in `wrong`, with its path.
class Reader {
 public:
  Reader(const json::object& in, std::string path, std::string& wrong)
      : in_(in), path_(std::move(path)), wrong_(wrong) {}

  template <class T>
  void operator()(const char* name, T& field) {
    if (!wrong_.empty()) return;
    const std::string path = path_.empty() ? std::string(name) : base::cat(path_, ".", name);
    const json::value* value = in_.if_contains(name);
    if (value == nullptr) {
      wrong_ = base::cat(path, " is missing");
    } else {
      from_value(*value, path, field);
    }
  }

 private:
  template <class T>
  void from_value(const json::value& value, const std::string& path, T& field) {
    if constexpr (is_vector<T>) {
      if (!value.is_array()) return complain(path, "an array");
      for (size_t i = 0; i < value.get_array().size() && wrong_.empty(); ++i)
        from_value(value.get_array()[i], base::cat(path, "[", i, "]"), field.emplace_back());
    } else if constexpr (std::is_enum_v<T>) {
      for (size_t i = 0; i < std::size(Names<T>::kAll); ++i)
        if (value.is_string() && value.get_string() == Names<T>::kAll[i])
          return void(field = static_cast<T>(i));
      complain(path, "one of the known words");
    } else if constexpr (std::is_same_v<T, std::string>) {
      if (!value.is_string()) return complain(path, "a string");
      field.assign(value.get_string().data(), value.get_string().size());
    } else if constexpr (std::is_same_v<T, bool>) {
      if (!value.is_bool()) return complain(path, "true or false");
      field = value.get_bool();
    } else if constexpr (std::is_arithmetic_v<T>) {
      read_number(value, path, field);
    } else {
      if (!value.is_object()) return complain(path, "an object");
      Reader reader(value.get_object(), path, wrong_);
      fields(reader, field);
    }
  }

  /// No figure here is negative but a node that stands for all of them, or beyond any machine.
  template <class T>
  void read_number(const json::value& value, const std::string& path, T& field) {
    json::error_code error;
    if constexpr (std::is_floating_point_v<T>) {
      const double number = value.is_number() ? value.to_number<double>(error) : -1;
      if (error || !std::isfinite(number) || number < 0)
        return complain(path, "a number from 0 up");
      field = number;
    } else {
      const T number = value.is_number() ? value.to_number<T>(error) : T{};
      const bool below = std::is_signed_v<T> && number < static_cast<T>(shm::kAllNodes);
      if (!value.is_number() || error || below) return complain(path, "a whole number in range");
      field = number;
    }
  }

  void complain(const std::string& path, const char* wanted) {
    wrong_ = base::cat(path, " is not ", wanted);
  }

  const json::object& in_;
  const std::string path_;
  std::string& wrong_;
};

/// What no machine measures, though every field has the right type.
std::string impossible(const shm::MachineProfile& profile) {
  std::string wrong;
  const auto check = [&](const char* what, size_t index, const shm::Spread& spread) {
    const bool ordered = spread.min <= spread.median && spread.median <= spread.max;
    if (wrong.empty() &&
        (!ordered || spread.samples < 0 || (spread.samples > 0 && spread.min <= 0)))
      wrong = base::cat(what, "[", index, "] has an impossible spread");
  };
  const auto check_all = [&](const char* what, const auto& figures, auto spread) {
    for (size_t i = 0; i < figures.size(); ++i) check(what, i, figures[i].*spread);
  };
  check_all("bandwidth", profile.bandwidth, &shm::BandwidthFigure::gb_per_s);
  check_all("latency", profile.latency, &shm::LatencyFigure::ns);
  check_all("lines", profile.lines, &shm::LineFigure::ns);
  check_all("exchanges", profile.exchanges, &shm::ExchangeFigure::ns);
  return wrong;
}

base::Error broken(const std::string& what) {
  return {base::Code::kBrokenFile, base::cat("this is no machine profile: ", what,
                                             "; measure again with numoe probe --save")};
}

}  // namespace

std::string profile_to_json(const shm::MachineProfile& profile) {
  json::object object;
  object["format"] = kFormat;
  object["version"] = shm::kMachineProfileVersion;
  shm::MachineProfile copy = profile;  // the table takes fields that can be written to
  Writer writer(object);
  fields(writer, copy);
  return json::serialize(object);
}

base::Result<shm::MachineProfile> profile_from_json(std::string_view text) {
  json::error_code error;
  const json::value value = json::parse({text.data(), text.size()}, error);
  if (error) return broken(error.message());
  if (!value.is_object()) return broken("it is not an object");
  const json::object& object = value.get_object();
  const json::value* format = object.if_contains("format");
  if (format == nullptr || !format->is_string() || format->get_string() != kFormat)
    return broken(base::cat("its format is not \"", kFormat, "\""));
  const json::value* version = object.if_contains("version");
  if (version == nullptr || !version->is_int64()) return broken("version is missing");
  if (version->get_int64() != shm::kMachineProfileVersion) {
    return base::Error{base::Code::kUnsupported,
                       base::cat("this machine profile has version ", version->get_int64(),
                                 ", and this program reads version ", shm::kMachineProfileVersion,
                                 "; measure again with numoe probe --save")};
  }
  shm::MachineProfile profile;
  std::string wrong;
  Reader reader(object, "", wrong);
  fields(reader, profile);
  if (wrong.empty()) wrong = impossible(profile);
  if (!wrong.empty()) return broken(wrong);
  return profile;
}

}  // namespace cli
