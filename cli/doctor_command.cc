// `numoe doctor`: what of this system's settings makes numoe slower or less safe, and the cure.
#include <unistd.h>

#include <algorithm>

#include "base/cat.h"
#include "broker/api/json_writer.h"
#include "cli/commands.h"
#include "cli/doctor_report.h"
#include "shm/topology.h"

namespace cli {

base::Result<std::vector<shm::Finding>> check_up_here(const Options& options) {
  ASSIGN_OR_RETURN(const shm::Topology topology, shm::read_topology({}));
  const shm::HealthFacts facts = shm::read_health_facts(
      topology, {.arena_directory = options.arena_directory, .uid = geteuid()});
  return shm::check_up(facts);
}

std::vector<std::string> start_warnings_here(const Options& options) {
  const auto findings = check_up_here(options);
  return findings.ok() ? shm::start_warnings(*findings) : std::vector<std::string>();
}

std::string findings_text(const std::vector<shm::Finding>& findings) {
  std::vector<shm::Finding> sorted = findings;
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const shm::Finding& a, const shm::Finding& b) { return a.level > b.level; });
  std::string text;
  for (const shm::Finding& finding : sorted) {
    std::string head = base::cat("  ", shm::level_name(finding.level));
    head.resize(11, ' ');
    text += base::cat(head, finding.id, ": ", finding.found, "\n");
    const std::string blanks(11, ' ');
    if (!finding.why.empty()) text += base::cat(blanks, "why: ", finding.why, "\n");
    if (!finding.cure.empty()) text += base::cat(blanks, "cure: ", finding.cure, "\n");
  }
  return text;
}

std::string findings_json(const std::vector<shm::Finding>& findings) {
  broker::JsonWriter json;
  json.begin_object();
  for (const shm::Level level : {shm::Level::kProblem, shm::Level::kWarning, shm::Level::kNote})
    json.field(base::cat(shm::level_name(level), "s"), count_of(findings, level));
  json.key("findings").begin_array();
  for (const shm::Finding& finding : findings) {
    json.begin_object().field("id", finding.id).field("level", shm::level_name(finding.level));
    json.field("found", finding.found).field("why", finding.why).field("cure", finding.cure);
    json.end_object();
  }
  return json.end_array().end_object().take();
}

int count_of(const std::vector<shm::Finding>& findings, shm::Level level) {
  return static_cast<int>(
      std::count_if(findings.begin(), findings.end(),
                    [&](const shm::Finding& finding) { return finding.level == level; }));
}

base::Status doctor(Context& context) {
  ASSIGN_OR_RETURN(const std::vector<shm::Finding> findings, check_up_here(context.options));
  RETURN_IF_ERROR(
      print(context.options.json ? findings_json(findings) + "\n" : findings_text(findings)));
  const int problems = count_of(findings, shm::Level::kProblem);
  if (problems == 0) return {};
  return base::Error{base::Code::kUnavailable,
                     base::cat(problems, problems == 1 ? " problem keeps" : " problems keep",
                               " numoe from serving here; the cures are above")};
}

}  // namespace cli
