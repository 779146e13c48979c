"""Operations on residues, and images whose sides are to be counted."""
