"""Reports as files: tables, CSV, JSON, XLSX, and the FinOps cost-and-usage format."""
