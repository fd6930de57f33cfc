"""What commands share: tables, numbers and sentences for a person, formats for programs."""
