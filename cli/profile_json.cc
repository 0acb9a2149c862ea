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

// The table: every struct once, for writing and for reading. A field that a struct has and the
// table lacks does not compile: the names before `= it` are as many as the struct has.

template <class Io>
void fields(Io& io, shm::Spread& it) {
  auto& [median, min, max, samples] = it;
  io("median", median), io("min", min), io("max", max), io("samples", samples);
}

template <class Io>
void fields(Io& io, shm::NodeFacts& it) {
  auto& [os_index, memory_bytes, free_bytes, cores, package, cpus, distances] = it;
  io("os_index", os_index), io("memory_bytes", memory_bytes);
  io("free_bytes", free_bytes), io("cores", cores), io("package", package);
  io("cpus", cpus), io("distances", distances);
}

template <class Io>
void fields(Io& io, shm::CacheFacts& it) {
  auto& [bytes, cpus] = it;
  io("bytes", bytes), io("cpus", cpus);
}

template <class Io>
void fields(Io& io, shm::MachineFacts& it) {
  auto& [cpu_model, microcode, hypervisor, board, bios, kernel, governor, transparent_huge_pages,
         shmem_huge_pages, numa_balancing, arena_file_system, packages, cpu_quota, available_bytes,
         memory_limit_bytes, nodes, last_caches] = it;
  io("cpu_model", cpu_model), io("microcode", microcode), io("hypervisor", hypervisor);
  io("board", board), io("bios", bios), io("kernel", kernel);
  io("governor", governor), io("transparent_huge_pages", transparent_huge_pages);
  io("shmem_huge_pages", shmem_huge_pages), io("numa_balancing", numa_balancing);
  io("arena_file_system", arena_file_system), io("packages", packages);
  io("cpu_quota", cpu_quota), io("available_bytes", available_bytes);
  io("memory_limit_bytes", memory_limit_bytes), io("nodes", nodes);
  io("last_caches", last_caches);
}

template <class Io>
void fields(Io& io, shm::MemoryFigure& it) {
  auto& [node, asked, bytes, huge_bytes, page_bytes, bound, verified_by, share_on_node] = it;
  io("node", node), io("asked", asked), io("bytes", bytes);
  io("huge_bytes", huge_bytes), io("page_bytes", page_bytes), io("bound", bound);
  io("verified_by", verified_by), io("share_on_node", share_on_node);
}

template <class Io>
void fields(Io& io, shm::BandwidthFigure& it) {
  auto& [traffic, pages, reader_node, memory_node, threads, gb_per_s] = it;
  io("traffic", traffic), io("pages", pages), io("reader_node", reader_node);
  io("memory_node", memory_node), io("threads", threads), io("gb_per_s", gb_per_s);
}

template <class Io>
void fields(Io& io, shm::LatencyFigure& it) {
  auto& [reader_node, memory_node, pages, ns] = it;
  io("reader_node", reader_node), io("memory_node", memory_node), io("pages", pages);
  io("ns", ns);
}

template <class Io>
void fields(Io& io, shm::LineFigure& it) {
  auto& [cpu_a, cpu_b, node_a, node_b, nearness, ns] = it;
  io("cpu_a", cpu_a), io("cpu_b", cpu_b), io("node_a", node_a), io("node_b", node_b);
  io("nearness", nearness), io("ns", ns);
}

template <class Io>
void fields(Io& io, shm::ExchangeFigure& it) {
  auto& [ranks, threads, simulated, gather_bytes, ns] = it;
  io("ranks", ranks), io("threads", threads), io("simulated", simulated);
  io("gather_bytes", gather_bytes), io("ns", ns);
}

template <class Io>
void fields(Io& io, shm::KernelFigure& it) {
  auto& [isa, work, columns, in_memory, g_per_s] = it;
  io("isa", isa), io("work", work), io("columns", columns), io("in_memory", in_memory),
      io("g_per_s", g_per_s);
}

template <class Io>
void fields(Io& io, shm::MachineProfile& it) {
  auto& [fingerprint, measured_at, quick, seconds, cpu_share, facts, memory, bandwidth, latency,
         lines, exchanges, kernels, notes] = it;
  io("fingerprint", fingerprint), io("measured_at", measured_at), io("quick", quick);
  io("seconds", seconds), io("cpu_share", cpu_share), io("facts", facts), io("memory", memory);
  io("bandwidth", bandwidth), io("latency", latency), io("lines", lines);
  io("exchanges", exchanges), io("kernels", kernels), io("notes", notes);
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
  check_all("kernels", profile.kernels, &shm::KernelFigure::g_per_s);
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
